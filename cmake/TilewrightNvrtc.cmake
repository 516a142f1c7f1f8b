# The NVRTC for the tests, passed to them in TILEWRIGHT_NVRTC: a toolkit's, else the one that tools/get_nvrtc.sh puts into the
# build folder (perhaps after this has run). TILEWRIGHT_NVRTC_OTHER is one of another version. Neither is needed to build.
find_file(TILEWRIGHT_TOOLKIT_NVRTC NAMES libnvrtc.so.13 libnvrtc.so.12
  PATHS $ENV{CUDA_HOME}/lib64 $ENV{CUDA_PATH}/lib64 /usr/local/cuda/lib64 NO_DEFAULT_PATH)
mark_as_advanced(TILEWRIGHT_TOOLKIT_NVRTC)
set(TILEWRIGHT_NVRTC_FOLDER "${PROJECT_BINARY_DIR}/nvrtc" CACHE PATH "Where tools/get_nvrtc.sh puts the compilers of the tests")
if(TILEWRIGHT_TOOLKIT_NVRTC AND NOT DEFINED ENV{TILEWRIGHT_IGNORE_TOOLKIT})
  set(default_nvrtc ${TILEWRIGHT_TOOLKIT_NVRTC})
else()
  set(default_nvrtc ${TILEWRIGHT_NVRTC_FOLDER}/13.0.88/libnvrtc.so.13)
endif()
set(TILEWRIGHT_TEST_NVRTC "${default_nvrtc}" CACHE FILEPATH
  "libnvrtc.so of the tests labelled nvrtc; they skip where it is missing")
set(TILEWRIGHT_TEST_NVRTC_OTHER "${TILEWRIGHT_NVRTC_FOLDER}/13.5.37/libnvrtc.so.13" CACHE FILEPATH
  "libnvrtc.so of another version than that, for tests")
mark_as_advanced(TILEWRIGHT_NVRTC_FOLDER TILEWRIGHT_TEST_NVRTC TILEWRIGHT_TEST_NVRTC_OTHER)
