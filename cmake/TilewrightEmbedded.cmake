# The CUDA sources and device headers of every room as text (tools/embed_sources.py), compiled into tw_embedded, so that the
# library needs no files at run time and the digests of kernels contain no paths.

get_property(names GLOBAL PROPERTY TILEWRIGHT_CUDA_SOURCES)
get_property(headers GLOBAL PROPERTY TILEWRIGHT_CUDA_HEADERS)
list(TRANSFORM names PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE sources)
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/include/ OUTPUT_VARIABLE header_files)
list(APPEND names ${headers})
list(APPEND sources ${header_files})
set(embedded_file ${PROJECT_BINARY_DIR}/generated/embedded_sources.cc)
add_custom_command(OUTPUT ${embedded_file}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/embed_sources.py --root ${PROJECT_SOURCE_DIR}/src
    --root ${PROJECT_SOURCE_DIR}/include
    --output ${embedded_file} ${names}
  DEPENDS ${PROJECT_SOURCE_DIR}/tools/embed_sources.py ${sources}
  COMMENT "Embedding the CUDA sources" VERBATIM)
add_library(tw_embedded STATIC ${embedded_file})
target_include_directories(tw_embedded PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_link_libraries(tw_embedded PUBLIC tl::expected PRIVATE tilewright_options)
