# Installs the build in BUILD_DIR into a fresh prefix under WORK_DIR, then configures, builds and runs the project beside this
# file against it. Usage: cmake -DBUILD_DIR=.. -DWORK_DIR=.. -DGENERATOR=.. -DCXX=.. [-DSHARED=ON] -P install_test.cmake
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${code}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)

file(GLOB_RECURSE installed ${WORK_DIR}/prefix/*.cmake)
foreach(file ${installed})
  file(READ ${file} content)
  string(FIND "${content}" "${SOURCE_DIR}" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "${file} names the source tree")
  endif()
endforeach()

# Moved, so that nothing can depend on where it was installed to.
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step(${WORK_DIR}/build/consumer ${WORK_DIR}/cache ${SOURCE_DIR}/tests/data/vocab_smollm.gguf)
string(FIND "${output}" "tilewright ${VERSION} on cpu/" place)
if(NOT place EQUAL 0)
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()
message("${output}")

# The command finds the worker that was installed with it.
if(EXISTS ${WORK_DIR}/moved/bin/tilewright)
  step(${CMAKE_COMMAND} -E env --unset=TILEWRIGHT_WORKER TILEWRIGHT_CACHE_DIR=${WORK_DIR}/cache
    ${WORK_DIR}/moved/bin/tilewright tune --gemm m=1,n=64,k=64,type=q8_0 --threads 1 --budget 300ms)
  string(FIND "${output}" "in this process" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "the installed worker was not found: ${output}")
  endif()
endif()
