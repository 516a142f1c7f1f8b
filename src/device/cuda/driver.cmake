# libcuda by dlopen: only its header is needed, from a toolkit or from NVIDIA's wheel nvidia-cuda-runtime. Without it the room
# holds the probe alone, which says so.
file(GLOB tw_cuda_wheels /usr/lib/python3*/*-packages/nvidia/*/include /usr/local/lib/python3*/*-packages/nvidia/*/include
  $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/*/include)
find_path(TILEWRIGHT_CUDA_INCLUDE cuda.h
  HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include /usr/local/cuda/include ${tw_cuda_wheels}
  DOC "Folder of cuda.h; without one the CUDA device is left out")
if(TILEWRIGHT_CUDA_INCLUDE)
  tilewright_room(device_cuda_driver SOURCES bus_id.cc cuda_device.cc device_health.cc driver.cc driver_objects.cc gpu_state.cc tensor_map_cache.cc DEPS device device_cuda core LIBRARIES fmt::fmt ${CMAKE_DL_LIBS})
  target_include_directories(tw_device_cuda_driver SYSTEM PUBLIC $<BUILD_INTERFACE:${TILEWRIGHT_CUDA_INCLUDE}>)
  tilewright_test(cuda_driver_test ROOMS device_cuda_driver SOURCES driver_test.cc driver_objects_test.cc LABELS unit)
  if(TARGET cuda_driver_test)
    target_compile_definitions(cuda_driver_test PRIVATE TILEWRIGHT_CUDA_INCLUDE="${TILEWRIGHT_CUDA_INCLUDE}")
  endif()
else()
  message(STATUS "No cuda.h (set TILEWRIGHT_CUDA_INCLUDE to its folder): the CUDA device is left out")
  tilewright_room(device_cuda_driver SOURCES driver_absent.cc DEPS device core)
  tilewright_test(cuda_driver_test ROOMS device_cuda_driver SOURCES driver_absent_test.cc LABELS unit)
endif()
