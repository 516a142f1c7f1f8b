# Imports oneDNN as DNNL::dnnl if it is installed, and sets dnnl_FOUND. Does not use its CMake package, since Debian's requires
# OpenCL's development files, which the CPU part does not need. Installed next to TilewrightConfig.cmake.
if(NOT TARGET DNNL::dnnl)
  find_path(DNNL_INCLUDE_DIR dnnl.hpp)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
    add_library(DNNL::dnnl SHARED IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES
      IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
  endif()
endif()
if(TARGET DNNL::dnnl)
  set(dnnl_FOUND TRUE)
endif()
