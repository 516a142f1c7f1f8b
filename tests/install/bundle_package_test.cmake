# The example package of examples/bundle_package, built against an installed Tilewright that was moved: its kernels are compiled
# by the build, again only when the list changes, and served where there is no compiler. Skips where NVRTC cannot be had.
# Usage: cmake -DBUILD_DIR=.. -DWORK_DIR=.. -DSOURCE_DIR=.. -DGENERATOR=.. -DCXX=.. -DCXX_FLAGS=.. -P bundle_package_test.cmake
if(NOT EXISTS "$ENV{TILEWRIGHT_NVRTC}")
  message("SKIPPED: no NVRTC at '$ENV{TILEWRIGHT_NVRTC}'")
  return()
endif()

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${code}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(expect_digest text file want)
  file(SHA256 ${file} got)
  if(want STREQUAL "different" AND got STREQUAL last_digest)
    message(FATAL_ERROR "${text}: ${file} is unchanged")
  elseif(want STREQUAL "equal" AND NOT got STREQUAL last_digest)
    message(FATAL_ERROR "${text}: ${file} changed")
  endif()
  set(last_digest ${got} PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)
file(COPY ${SOURCE_DIR}/examples/bundle_package DESTINATION ${WORK_DIR})

# A bundle of all kernels that was installed is named to who finds the package.
file(WRITE ${WORK_DIR}/moved/share/tilewright/tilewright.twb "")
file(WRITE ${WORK_DIR}/find/CMakeLists.txt "cmake_minimum_required(VERSION 3.22)\nproject(find LANGUAGES C CXX)\n"
  "find_package(Tilewright REQUIRED)\nmessage(\"bundle: \${Tilewright_BUNDLE}\")\n")
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK_DIR}/find -B ${WORK_DIR}/find/build -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved
  -DCMAKE_CXX_COMPILER=${CXX})
if(NOT output MATCHES "bundle: ${WORK_DIR}/moved/share/tilewright/tilewright.twb\n")
  message(FATAL_ERROR "the installed bundle is not named: ${output}")
endif()

# Built, with a cache of its own.
set(ENV{XDG_CACHE_HOME} ${WORK_DIR}/build_cache)
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK_DIR}/bundle_package -B ${WORK_DIR}/build
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
set(bundle ${WORK_DIR}/build/kernels.twb)
expect_digest("built" ${bundle} "any")
file(TIMESTAMP ${WORK_DIR}/build/tilewright_bundles/kernels.twb before "%s")

# Nothing changed: nothing is compiled.
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
file(TIMESTAMP ${WORK_DIR}/build/tilewright_bundles/kernels.twb after "%s")
if(NOT before STREQUAL after)
  message(FATAL_ERROR "the bundle was built again though nothing changed")
endif()

# Run where the compiler cannot be found, with an empty cache, from elsewhere.
set(nvrtc $ENV{TILEWRIGHT_NVRTC})
set(ENV{TILEWRIGHT_NVRTC} ${WORK_DIR}/no_nvrtc)
set(ENV{XDG_CACHE_HOME} ${WORK_DIR}/run_cache)
step(${WORK_DIR}/build/kernel_info)
if(NOT output MATCHES "threads, [1-9][0-9]* registers.*\n2 kernels, 0 compiled\n$")
  message(FATAL_ERROR "kernel_info printed: ${output}")
endif()
# The other architecture is there too; a kernel that the list lacks is an error which says so.
set(norm rmsnorm.bf16-bf16-none-bf16.tt)
step(${WORK_DIR}/build/kernel_info ${norm}.sm_80.0x0x0.w8.s0.k0.c0x0.scale.p2_0_0_0)
set(missing ${norm}.sm_90a.0x0x0.w4.s0.k0.c0x0.scale.p2_0_0_0)
execute_process(COMMAND ${WORK_DIR}/build/kernel_info ${missing} RESULT_VARIABLE code OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(code EQUAL 0 OR NOT output MATCHES "rmsnorm")
  message(FATAL_ERROR "a kernel that is not in the bundle: exit ${code}, ${output}")
endif()

# With it in the list, the next build has it; the list that strict mode wrote is such a list.
set(ENV{TILEWRIGHT_NVRTC} ${nvrtc})
set(ENV{XDG_CACHE_HOME} ${WORK_DIR}/build_cache)
file(GLOB_RECURSE lists ${WORK_DIR}/run_cache/*missing.txt)
list(LENGTH lists count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "strict mode wrote ${count} lists: ${lists}")
endif()
file(READ ${lists} wanted)
file(APPEND ${WORK_DIR}/bundle_package/kernels.txt "${wanted}")
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
expect_digest("with a longer list" ${bundle} "different")

# A build from nothing, with another compiler cache, gives the same bytes.
file(REMOVE_RECURSE ${WORK_DIR}/build_cache ${bundle} ${WORK_DIR}/build/tilewright_bundles)
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
expect_digest("built again from nothing" ${bundle} "equal")

# Installed, moved, and run there.
step(${CMAKE_COMMAND} --install ${WORK_DIR}/build --prefix ${WORK_DIR}/package)
file(RENAME ${WORK_DIR}/package ${WORK_DIR}/package_moved)
file(REMOVE_RECURSE ${WORK_DIR}/build)
set(ENV{TILEWRIGHT_NVRTC} ${WORK_DIR}/no_nvrtc)
set(ENV{XDG_CACHE_HOME} ${WORK_DIR}/installed_cache)
set(ENV{LD_LIBRARY_PATH} "${WORK_DIR}/moved/lib:$ENV{LD_LIBRARY_PATH}")  # of a shared library, which is another package's
step(${WORK_DIR}/package_moved/bin/kernel_info ${missing})
message("${output}")
