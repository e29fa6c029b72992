# cmake -DOUT=file.cpp -DPAGE=… -DSTYLE=… "-DSCRIPT=a.js,b.js" -DCHART_LIBRARY=… -DCHART_LICENCE=… -P embed.cmake
# writes built_in_report_parts() (bench/report_page.hpp). An empty path is an empty part.
cmake_minimum_required(VERSION 3.25)

function(read_part name)
  set(text "")
  string(REPLACE "," ";" files "${${name}}")
  foreach(file ${files})
    file(READ "${file}" content)
    if(content MATCHES "\\)pumice\"")
      message(FATAL_ERROR "${file} cannot be embedded: it ends the literal")
    endif()
    string(APPEND text "${content}\n")
  endforeach()
  # Within a script element nothing may look like its end.
  string(FIND "${text}" "</script" found)
  if(NOT found EQUAL -1 AND NOT "${name}" STREQUAL "PAGE")
    message(FATAL_ERROR "${name}: contains </script")
  endif()
  string(TOLOWER ${name} field)
  set(parts "${parts}      .${field} = R\"pumice(${text})pumice\",\n" PARENT_SCOPE)
endfunction()

set(parts "")
foreach(name PAGE STYLE SCRIPT CHART_LIBRARY CHART_LICENCE)
  read_part(${name})
endforeach()
file(WRITE "${OUT}" "// Written by bench/report/embed.cmake.
#include \"bench/report_page.hpp\"

namespace pumice::bench {

const ReportParts& built_in_report_parts() {
  static constexpr ReportParts kParts{
${parts}  };
  return kParts;
}

}  // namespace pumice::bench
")
