# cmake -DOUT=file.cpp -DSCHEMA=record.schema.json -P embed_schema.cmake
# writes record_schema_text() (bench/submission.hpp).
cmake_minimum_required(VERSION 3.25)
file(READ "${SCHEMA}" text)
if(text MATCHES "\\)pumice\"")
  message(FATAL_ERROR "${SCHEMA} cannot be embedded: it ends the literal")
endif()
file(WRITE "${OUT}" "// Written by bench/embed_schema.cmake.
#include \"bench/submission.hpp\"

std::string_view pumice::bench::record_schema_text() {
  return R\"pumice(${text})pumice\";
}
")
