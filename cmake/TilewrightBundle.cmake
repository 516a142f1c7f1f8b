# Kernels compiled while a package is built, and shipped with it.
#
#   tilewright_add_bundle(target ARCHS sm_90a sm_80 LIST kernels.txt)
#   tilewright_add_bundle(target ARCHS sm_90a [LIST file] [MODEL file.gguf] [ALL] [OUTPUT name.twb] [SIGN key.pem]
#                         [NO_PTX] [NO_SOURCE] [INSTALL_DESTINATION folder])
#
# Builds a bundle of the kernels given by LIST (names as written by `tilewright cache ls` and strict mode), MODEL (the kernels
# that the model needs) or ALL (every predefined kernel), at least one of the three, for every architecture of ARCHS. The build
# machine needs a compiler (NVRTC), but no GPU. The bundle is built again when the list, the model, the key or the command
# changes. It is placed next to the target's own file as OUTPUT (default: the target's name and .twb), and installed to
# INSTALL_DESTINATION, if given, by `cmake --install`. The target's property TILEWRIGHT_BUNDLES lists the files in the build
# folder; the target NAME_bundles builds only the bundles.
#
# The tilewright command is that of this build or of the installed package; TILEWRIGHT_COMMAND names another, for instance
# that of the host when cross-compiling.
include_guard(GLOBAL)
cmake_policy(PUSH)
cmake_policy(VERSION 3.22)  # CMP0112: naming a target's folder does not make us depend on the target, which depends on us

function(tilewright_add_bundle target)
  cmake_parse_arguments(PARSE_ARGV 1 B "ALL;NO_PTX;NO_SOURCE" "LIST;MODEL;OUTPUT;SIGN;INSTALL_DESTINATION" "ARCHS")
  set(where "tilewright_add_bundle(${target})")
  if(B_UNPARSED_ARGUMENTS OR B_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${where}: unknown argument or missing value: ${B_UNPARSED_ARGUMENTS} ${B_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${where}: no target ${target}")
  endif()
  if(NOT B_ARCHS)
    message(FATAL_ERROR "${where}: ARCHS names no architecture, for instance sm_90a")
  endif()
  foreach(arch ${B_ARCHS})
    if(NOT arch MATCHES "^sm_[0-9]+[af]?$")
      message(FATAL_ERROR "${where}: ARCHS: '${arch}' is not an architecture; expected a name such as sm_80 or sm_90a")
    endif()
  endforeach()
  if(NOT B_LIST AND NOT B_MODEL AND NOT B_ALL)
    message(FATAL_ERROR "${where}: name the kernels: LIST file, MODEL file or ALL")
  endif()
  if(NOT B_OUTPUT)
    set(B_OUTPUT ${target}.twb)
  elseif(NOT B_OUTPUT MATCHES "^[^/]+$")
    message(FATAL_ERROR "${where}: OUTPUT ${B_OUTPUT} is a path; expected a file name, since the bundle is placed next to the target's file")
  endif()
  string(MAKE_C_IDENTIFIER ${B_OUTPUT} name)
  if(TARGET ${target}_bundle_${name})
    message(FATAL_ERROR "${where}: OUTPUT ${B_OUTPUT}: the target already has a bundle of this name, or of one that differs only in punctuation")
  endif()

  # The command: the path given, that of this build, or that of the installed package.
  if(TILEWRIGHT_COMMAND)
    set(command ${TILEWRIGHT_COMMAND})
    set(depends ${TILEWRIGHT_COMMAND})
  elseif(TARGET tilewright_cli)
    set(command tilewright_cli)
    set(depends tilewright_cli)
  elseif(TARGET Tilewright::tilewright_cli)
    set(command Tilewright::tilewright_cli)
    set(depends $<TARGET_FILE:Tilewright::tilewright_cli>)
  else()
    message(FATAL_ERROR "${where}: there is no tilewright command (this Tilewright was built with TILEWRIGHT_BUILD_CLI=OFF); "
                        "TILEWRIGHT_COMMAND may name one")
  endif()

  list(JOIN B_ARCHS "," archs)
  set(arguments --arch ${archs})
  foreach(option LIST MODEL SIGN)
    if(B_${option})
      get_filename_component(file ${B_${option}} ABSOLUTE)
      string(TOLOWER ${option} flag)
      list(APPEND arguments --${flag} ${file})
      list(APPEND depends ${file})
    endif()
  endforeach()
  foreach(option ALL NO_PTX NO_SOURCE)
    if(B_${option})
      string(TOLOWER ${option} flag)
      string(REPLACE "_" "-" flag ${flag})
      list(APPEND arguments --${flag})
    endif()
  endforeach()

  set(bundle ${CMAKE_CURRENT_BINARY_DIR}/tilewright_bundles/${B_OUTPUT})
  add_custom_command(OUTPUT ${bundle}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/tilewright_bundles
    COMMAND ${command} bundle build ${arguments} -o ${bundle}
    DEPENDS ${depends}
    COMMENT "Compiling the kernels of ${B_OUTPUT}" VERBATIM)

  # Not a build step of the target, which would run only when the target is linked again, not when the list changes. Nor a
  # target without an output, which would run in every build.
  set(done ${bundle})
  get_target_property(type ${target} TYPE)
  if(type MATCHES "^(EXECUTABLE|(STATIC|SHARED|MODULE)_LIBRARY)$")
    set(done ${bundle}.placed$<CONFIG>)
    add_custom_command(OUTPUT ${done}
      COMMAND ${CMAKE_COMMAND} -E make_directory $<TARGET_FILE_DIR:${target}>
      COMMAND ${CMAKE_COMMAND} -E copy_if_different ${bundle} $<TARGET_FILE_DIR:${target}>/${B_OUTPUT}
      COMMAND ${CMAKE_COMMAND} -E touch ${done}
      DEPENDS ${bundle}
      COMMENT "Placing ${B_OUTPUT} beside ${target}" VERBATIM)
  endif()
  add_custom_target(${target}_bundle_${name} ALL DEPENDS ${done})
  if(NOT TARGET ${target}_bundles)
    add_custom_target(${target}_bundles)
    # In the build of Tilewright itself, the command would otherwise depend on the bundle that it makes.
    if(NOT target STREQUAL "tilewright_cli")
      add_dependencies(${target} ${target}_bundles)
    endif()
  endif()
  add_dependencies(${target}_bundles ${target}_bundle_${name})
  set_property(TARGET ${target} APPEND PROPERTY TILEWRIGHT_BUNDLES ${bundle})
  if(B_INSTALL_DESTINATION)
    install(FILES ${bundle} DESTINATION ${B_INSTALL_DESTINATION})
  endif()
endfunction()

cmake_policy(POP)
