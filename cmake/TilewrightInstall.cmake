# Headers, library and a CMake package (the command installs itself): find_package(Tilewright) then link Tilewright::tilewright.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tilewright)
install(TARGETS tilewright EXPORT TilewrightTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilewright DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT TilewrightTargets NAMESPACE Tilewright:: DESTINATION ${package_dir})

# A static library leaves its own libraries to be found by its user.
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
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TilewrightConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TilewrightConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TilewrightConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TilewrightConfig.cmake ${PROJECT_BINARY_DIR}/TilewrightConfigVersion.cmake
  DESTINATION ${package_dir})
