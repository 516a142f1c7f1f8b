# A room is a folder under src/ with its own library, tests beside the code, and an explicit list of what it may use.
#
#   tilewright_room(ops_norm
#     SOURCES norm.cc reference.cc
#     KERNELS cpu/norm_scalar.cc cpu/norm_avx2.cc     # fingerprinted; ISA flags follow the suffix
#     CUDA_SOURCES cuda/rmsnorm.cu                    # embedded as text, compiled at run time
#     CUDA_HEADERS tilewright/cuda/rmsnorm_params.h   # public headers that those include, embedded as well
#     DEPS engine device
#     LIBRARIES SQLite::SQLite3)
#   tilewright_test(norm_test ROOMS ops_norm SOURCES norm_test.cc LABELS unit [SERIAL] [DATA] [VERIFIES] [TIMEOUT seconds])
#
# Labels: unit, cpu, model (needs the model file), nvrtc (needs NVRTC), cuda (needs a GPU), cuda_host (CUDA kernels, and
# what launches them, without a GPU: given to every test of such a room), slow, full (only `make test-full` runs it), parse (CI
# runs it under ASan and UBSan), tsan (CI runs it under TSan).
# The target tests_LABEL builds every test of a label. DATA defines TILEWRIGHT_TEST_DATA, the path of tests/data: only for those that
# read it, since a path keeps a compiler cache from answering for another checkout. SERIAL is for tests that measure time: ctest runs no other test meanwhile.
# VERIFIES: what the test finds right stands in the tables of the documentation (engine/verified_test_util.h, tools/docs).

add_library(tilewright_options INTERFACE)
# GCC 12 warns inside its own AVX-512 headers (uninitialized) and std::string (restrict): false alarms, off.
target_compile_options(tilewright_options INTERFACE -Wall -Wextra -Wno-psabi
  $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized;-Wno-restrict>
  $<$<BOOL:${TILEWRIGHT_WERROR}>:-Werror>)

# Sanitizers are flags of the whole tree, not of a target, since everything that links instrumented objects must use them.
if(TILEWRIGHT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TILEWRIGHT_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
if(TILEWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${TILEWRIGHT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${TILEWRIGHT_SANITIZE})
endif()

# Flags by file-name suffix. A kernel file compiled for an ISA must keep everything it instantiates in an unnamed namespace or
# behind `static`: a shared inline function compiled with AVX-512 could otherwise be the one the linker keeps.
set(TILEWRIGHT_ISA_FLAGS_scalar "")
set(TILEWRIGHT_ISA_FLAGS_avx2 "-mavx2;-mfma;-mf16c;-mbmi2")
set(TILEWRIGHT_ISA_FLAGS_avx512
  "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd;-mavx2;-mfma;-mf16c;-mbmi2;-mprefer-vector-width=512")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND TILEWRIGHT_SANITIZE MATCHES address)
  # The frames of detect_stack_use_after_return are aligned to 32 bytes with GCC 12, and a program ends at the first vector of
  # AVX-512 that is spilled to one (GCC bug 110027).
  list(APPEND TILEWRIGHT_ISA_FLAGS_avx512 --param=asan-use-after-return=0)
endif()
set(TILEWRIGHT_ISA_FLAGS_avx512vnni "${TILEWRIGHT_ISA_FLAGS_avx512};-mavx512vnni")
set(TILEWRIGHT_ISA_FLAGS_avx512bf16 "${TILEWRIGHT_ISA_FLAGS_avx512};-mavx512bf16")
# prfchw: every processor with AMX has it, and __builtin_prefetch for a write is one for a read without.
set(TILEWRIGHT_ISA_FLAGS_amx
  "${TILEWRIGHT_ISA_FLAGS_avx512vnni};-mavx512vbmi;-mavx512bf16;-mavx512fp16;-mprfchw;-mamx-tile;-mamx-int8;-mamx-bf16")

set_property(GLOBAL PROPERTY TILEWRIGHT_ROOMS "")
set_property(GLOBAL PROPERTY TILEWRIGHT_ROOM_LIBRARIES "")
set_property(GLOBAL PROPERTY TILEWRIGHT_KERNEL_SOURCES "")
set_property(GLOBAL PROPERTY TILEWRIGHT_CUDA_SOURCES "")
set_property(GLOBAL PROPERTY TILEWRIGHT_CUDA_HEADERS "")
set_property(GLOBAL PROPERTY TILEWRIGHT_VERIFYING_TESTS "")

function(tilewright_room name)
  cmake_parse_arguments(R "" "" "SOURCES;KERNELS;CUDA_SOURCES;CUDA_HEADERS;DEPS;LIBRARIES" ${ARGN})
  if(R_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tilewright_room(${name}): unknown arguments ${R_UNPARSED_ARGUMENTS}")
  endif()
  set(target tw_${name})
  if(R_SOURCES OR R_KERNELS)
    add_library(${target} STATIC ${R_SOURCES} ${R_KERNELS})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${target} ${scope} tl::expected Threads::Threads)
  if(scope STREQUAL PUBLIC)
    target_link_libraries(${target} PRIVATE tilewright_options)
  endif()
  foreach(dep ${R_DEPS})
    target_link_libraries(${target} ${scope} tw_${dep})
  endforeach()
  target_link_libraries(${target} ${scope} ${R_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_ROOM_LIBRARIES ${R_LIBRARIES})

  # The oracles are long loops: without optimisation a sanitizer's tests of GEMM take three times as long.
  if(TILEWRIGHT_SANITIZE)
    foreach(source ${R_SOURCES})
      if(source MATCHES "reference[^/]*\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -O1)
      endif()
    endforeach()
  endif()
  foreach(source ${R_KERNELS})
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX MATCH "[^_]+$" isa ${stem})
    if(isa MATCHES "avx|amx" AND NOT DEFINED TILEWRIGHT_ISA_FLAGS_${isa})
      message(FATAL_ERROR "${source}: the suffixes that set flags are _avx2, _avx512, _avx512vnni, _avx512bf16 and _amx")
    endif()
    set(level -O3)
    if(TILEWRIGHT_SANITIZE)
      set(level -O1)  # the unrolled templates of one file would take ten minutes at -O3
    endif()
    if(TILEWRIGHT_FUZZ)
      # No fuzz target is about kernels, which the tests under AddressSanitizer check; clang takes four minutes a file for them.
      list(APPEND level -fno-sanitize=all)
    endif()
    set(flags ${level} -ffp-contract=off ${TILEWRIGHT_ISA_FLAGS_${isa}})
    file(RELATIVE_PATH tu ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set_source_files_properties(${source} PROPERTIES
      COMPILE_OPTIONS "${flags}" COMPILE_DEFINITIONS "TILEWRIGHT_TU=\"${tu}\"")
    list(JOIN flags " " flags)
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_KERNEL_SOURCES "${tu}|${flags}")
  endforeach()
  if(R_KERNELS)
    # Defined after the last room (TilewrightFingerprints), when every kernel is known.
    target_link_libraries(${target} PUBLIC tw_fingerprints)
  endif()
  foreach(source ${R_CUDA_SOURCES})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_CUDA_SOURCES ${name})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_CUDA_HEADERS ${R_CUDA_HEADERS})
  if(R_CUDA_SOURCES)
    # Defined after the last room (TilewrightEmbedded), when every source is known.
    target_link_libraries(${target} PUBLIC tw_embedded)
  endif()
  if(scope STREQUAL PUBLIC)
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_ROOMS ${target})
  endif()
endfunction()

function(tilewright_test name)
  if(NOT TILEWRIGHT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "NO_MAIN;SERIAL;DATA;VERIFIES" "TIMEOUT" "SOURCES;ROOMS;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  if(T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tilewright_test(${name}): unknown arguments ${T_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${name} ${T_SOURCES})
  foreach(room ${T_ROOMS})
    target_link_libraries(${name} PRIVATE tw_${room})
  endforeach()
  target_link_libraries(${name} PRIVATE tilewright_options ${T_LIBRARIES})
  if(NOT T_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gmock_main)
  endif()
  if(T_DATA)
    target_compile_definitions(${name} PRIVATE TILEWRIGHT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600)
  endif()
  if("${T_ROOMS}" MATCHES "_cuda" AND NOT "cuda" IN_LIST T_LABELS)
    list(APPEND T_LABELS cuda_host)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  tilewright_test_properties(${name} LABELS ${T_LABELS} ENVIRONMENT ${T_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT})
  if(T_VERIFIES)
    tilewright_test_verifies(${name})
    list(APPEND T_LABELS verifies)
  endif()
  if(T_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  foreach(label ${T_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# A test that reports what it found right: see VERIFIES above.
function(tilewright_test_verifies name)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT GTEST_OUTPUT=json:${PROJECT_BINARY_DIR}/test-results/${name}.json)
  set_property(TEST ${name} APPEND PROPERTY LABELS verifies)
  set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_VERIFYING_TESTS ${name})
endfunction()

# Properties of every test, including those added by add_test: labels, the model's path in TILEWRIGHT_MODEL, two compilers of
# different versions in TILEWRIGHT_NVRTC and TILEWRIGHT_NVRTC_OTHER, and a separate cache so that no test uses the user's.
function(tilewright_test_properties name)
  cmake_parse_arguments(P "" "" "LABELS;ENVIRONMENT" ${ARGN})
  set(environment TILEWRIGHT_MODEL=${TILEWRIGHT_MODEL} TILEWRIGHT_NVRTC=${TILEWRIGHT_TEST_NVRTC}
    TILEWRIGHT_NVRTC_OTHER=${TILEWRIGHT_TEST_NVRTC_OTHER} XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache/${name} ${P_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES LABELS "${P_LABELS}" ENVIRONMENT "${environment}")
  if("model" IN_LIST P_LABELS OR "nvrtc" IN_LIST P_LABELS OR "cuda" IN_LIST P_LABELS OR "full" IN_LIST P_LABELS)
    # GoogleTest ends with its list of skipped cases unless a case failed. So without the model, the compiler or a GPU a test
    # counts as skipped, but a failure remains a failure.
    set_tests_properties(${name} PROPERTIES
      SKIP_REGULAR_EXPRESSION "listed below:\n(\\[  SKIPPED \\] [^\n]*\n)+$")
  endif()
endfunction()
