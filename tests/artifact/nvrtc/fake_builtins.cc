// Stands for libnvrtc-builtins.so: a library that is there.
extern "C" __attribute__((visibility("default"))) int fake_builtins() { return 1; }
