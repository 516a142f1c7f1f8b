// Stands for libnvrtc-builtins.so: a library that is there.
extern "C" __attribute__((visibility("default"))) int FakeBuiltins() { return 1; }
