// A stand-in for libnvrtc-builtins.so: a library that merely exists.
extern "C" __attribute__((visibility("default"))) int FakeBuiltins() { return 1; }
