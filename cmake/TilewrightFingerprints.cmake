# Digest of every kernel translation unit, computed at build time (tools/fingerprint.py) and compiled into tw_fingerprints:
# its source, every project header it includes, compiler and flags. A record of a kernel whose digest changed is stale.

get_property(kernels GLOBAL PROPERTY TILEWRIGHT_KERNEL_SOURCES)
get_directory_property(directory_options COMPILE_OPTIONS)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
list(JOIN directory_options " " directory_options)
string(JOIN "\n" manifest
  "compiler ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR}"
  "flags -std=c++${CMAKE_CXX_STANDARD} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${directory_options}"
  ${kernels})
set(manifest_file ${PROJECT_BINARY_DIR}/generated/fingerprints.manifest)
set(table_file ${PROJECT_BINARY_DIR}/generated/fingerprints.cc)
file(GENERATE OUTPUT ${manifest_file} CONTENT "${manifest}\n")

set(sources "")
foreach(kernel ${kernels})
  string(REGEX REPLACE "\\|.*" "" tu "${kernel}")
  list(APPEND sources ${PROJECT_SOURCE_DIR}/src/${tu})
endforeach()
add_custom_command(OUTPUT ${table_file}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py --root ${PROJECT_SOURCE_DIR}
    --manifest ${manifest_file} --output ${table_file} --depfile ${table_file}.d
  DEPENDS ${PROJECT_SOURCE_DIR}/tools/fingerprint.py ${manifest_file} ${sources}
  DEPFILE ${table_file}.d
  COMMENT "Fingerprinting the kernels" VERBATIM)
add_library(tw_fingerprints STATIC ${table_file} ${PROJECT_SOURCE_DIR}/src/core/fingerprint.cc)
target_include_directories(tw_fingerprints PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_link_libraries(tw_fingerprints PRIVATE tilewright_options)
