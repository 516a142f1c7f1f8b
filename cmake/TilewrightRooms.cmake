# A room is one folder under src/ with its own library, tests beside the code, and a written list of what it may use.
#
#   tilewright_room(ops_norm
#     SOURCES norm.cc reference.cc
#     KERNELS cpu/norm_scalar.cc cpu/norm_avx2.cc     # fingerprinted; ISA flags follow the suffix
#     DEPS engine device
#     LIBRARIES SQLite::SQLite3)
#   tilewright_test(norm_test ROOMS ops_norm SOURCES norm_test.cc LABELS unit)

add_library(tilewright_options INTERFACE)
target_compile_options(tilewright_options INTERFACE -Wall -Wextra -Wno-psabi
  $<$<BOOL:${TILEWRIGHT_WERROR}>:-Werror>)
if(TILEWRIGHT_SANITIZE)
  target_compile_options(tilewright_options INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
  target_link_options(tilewright_options INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE})
endif()

# Flags by file-name suffix. A kernel file compiled for an ISA must keep everything it instantiates in an unnamed namespace or
# behind `static`: a shared inline function compiled with AVX-512 could otherwise be the one the linker keeps.
set(TILEWRIGHT_ISA_FLAGS_scalar "")
set(TILEWRIGHT_ISA_FLAGS_avx2 "-mavx2;-mfma;-mf16c;-mbmi2")
set(TILEWRIGHT_ISA_FLAGS_avx512
  "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd;-mavx2;-mfma;-mf16c;-mbmi2;-mprefer-vector-width=512")
set(TILEWRIGHT_ISA_FLAGS_avx512vnni "${TILEWRIGHT_ISA_FLAGS_avx512};-mavx512vnni")
set(TILEWRIGHT_ISA_FLAGS_amx "${TILEWRIGHT_ISA_FLAGS_avx512vnni};-mamx-tile;-mamx-int8;-mamx-bf16")

set_property(GLOBAL PROPERTY TILEWRIGHT_ROOMS "")
set_property(GLOBAL PROPERTY TILEWRIGHT_KERNEL_SOURCES "")

function(tilewright_room name)
  cmake_parse_arguments(R "" "" "SOURCES;KERNELS;DEPS;LIBRARIES" ${ARGN})
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

  foreach(source ${R_KERNELS})
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX MATCH "[^_]+$" isa ${stem})
    set(flags -O3 -ffp-contract=off)
    if(DEFINED TILEWRIGHT_ISA_FLAGS_${isa})
      list(APPEND flags ${TILEWRIGHT_ISA_FLAGS_${isa}})
    endif()
    file(RELATIVE_PATH tu ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set_source_files_properties(${source} PROPERTIES
      COMPILE_OPTIONS "${flags}" COMPILE_DEFINITIONS "TILEWRIGHT_TU=\"${tu}\"")
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_KERNEL_SOURCES "${tu}|${flags}")
  endforeach()
  if(scope STREQUAL PUBLIC)
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_ROOMS ${target})
  endif()
endfunction()

function(tilewright_test name)
  if(NOT TILEWRIGHT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "NO_MAIN" "TIMEOUT" "SOURCES;ROOMS;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  foreach(room ${T_ROOMS})
    target_link_libraries(${name} PRIVATE tw_${room})
  endforeach()
  target_link_libraries(${name} PRIVATE tilewright_options ${T_LIBRARIES})
  if(NOT T_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gmock_main)
  endif()
  target_compile_definitions(${name} PRIVATE
    TILEWRIGHT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
    ENVIRONMENT "${T_ENVIRONMENT}")
endfunction()
