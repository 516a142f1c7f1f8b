# Headers, library and a CMake package (the command has its own install rule): call find_package(Tilewright), then link
# Tilewright::tilewright; tilewright_add_bundle compiles kernels for the user's package with Tilewright::tilewright_cli.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tilewright)
install(TARGETS tilewright EXPORT TilewrightTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilewright DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tilewright_cli AND BUILD_SHARED_LIBS)
  # The build of a user's package runs the command from wherever it was installed to.
  file(RELATIVE_PATH to_library /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_property(TARGET tilewright_cli APPEND PROPERTY INSTALL_RPATH $ORIGIN/${to_library})
  file(RELATIVE_PATH to_library /${CMAKE_INSTALL_LIBEXECDIR}/tilewright /${CMAKE_INSTALL_LIBDIR})
  set_property(TARGET tilewright_worker APPEND PROPERTY INSTALL_RPATH $ORIGIN/${to_library})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/cmake/TilewrightBundle.cmake DESTINATION ${package_dir})
install(EXPORT TilewrightTargets NAMESPACE Tilewright:: DESTINATION ${package_dir})

# The user of a static library must find the libraries that it depends on.
get_target_property(linked tilewright LINK_LIBRARIES)
set(TILEWRIGHT_FIND_DEPENDENCIES "")
if(NOT BUILD_SHARED_LIBS)
  foreach(library ${linked})
    if(library MATCHES "^(fmt|spdlog|OpenMP|OpenSSL|SQLite)::")
      string(REGEX REPLACE "::.*" "" package ${library})
      string(REPLACE "SQLite" "SQLite3" package ${package})
      string(APPEND TILEWRIGHT_FIND_DEPENDENCIES "find_dependency(${package})\n")
    endif()
  endforeach()
  if("DNNL::dnnl" IN_LIST linked)
    string(APPEND TILEWRIGHT_FIND_DEPENDENCIES
      "include(\${CMAKE_CURRENT_LIST_DIR}/TilewrightDnnl.cmake)\n")
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/TilewrightDnnl.cmake DESTINATION ${package_dir})
  endif()
  if("PkgConfig::PCRE2" IN_LIST linked)
    string(APPEND TILEWRIGHT_FIND_DEPENDENCIES [[
find_dependency(PkgConfig)
if(NOT TARGET PkgConfig::PCRE2)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)
endif()
]])
  endif()
endif()
# Every predefined kernel, compiled for TILEWRIGHT_BUNDLE_ARCHS, for machines without a compiler.
set(TILEWRIGHT_BUNDLE_ARCHS "" CACHE STRING
  "Install a bundle of all kernels for these architectures (sm_90a;sm_80); needs NVRTC to build, \"\" installs none")
set(bundle_file ${CMAKE_INSTALL_DATADIR}/tilewright/tilewright.twb)
if(TILEWRIGHT_BUNDLE_ARCHS)
  if(NOT TARGET tilewright_cli)
    message(FATAL_ERROR "TILEWRIGHT_BUNDLE_ARCHS needs the command that builds the bundle: TILEWRIGHT_BUILD_CLI=ON")
  endif()
  tilewright_add_bundle(tilewright_cli ARCHS ${TILEWRIGHT_BUNDLE_ARCHS} ALL OUTPUT tilewright.twb
    INSTALL_DESTINATION ${CMAKE_INSTALL_DATADIR}/tilewright)
elseif(TARGET tilewright_cli)
  # What `make bundle` made, if it did.
  install(FILES ${PROJECT_BINARY_DIR}/cli/tilewright.twb DESTINATION ${CMAKE_INSTALL_DATADIR}/tilewright OPTIONAL)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TilewrightConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TilewrightConfig.cmake INSTALL_DESTINATION ${package_dir} PATH_VARS bundle_file)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TilewrightConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TilewrightConfig.cmake ${PROJECT_BINARY_DIR}/TilewrightConfigVersion.cmake
  DESTINATION ${package_dir})
