# cmake -DOUT=file.cpp -DFOLDER=… -P embed.cmake
# writes status_page() (tools/serve/status/status_page.hpp): one file, and a policy that names what is in it.
cmake_minimum_required(VERSION 3.25)

# As Content-Security-Policy has the hash of an element's text.
function(source_of text result)
  string(SHA256 digits "${text}")
  set(letters "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(hash "")
  string(APPEND digits "00")  # 32 bytes are ten groups of three and two of one more
  foreach(at RANGE 0 60 6)
    string(SUBSTRING "${digits}" ${at} 6 group)
    math(EXPR group "0x${group}")
    foreach(shift 18 12 6 0)
      math(EXPR letter "(${group} >> ${shift}) & 63")
      string(SUBSTRING "${letters}" ${letter} 1 letter)
      string(APPEND hash "${letter}")
    endforeach()
  endforeach()
  string(REGEX REPLACE ".$" "=" hash "${hash}")
  set(${result} "'sha256-${hash}'" PARENT_SCOPE)
endfunction()

file(READ "${FOLDER}/page.html" page)
file(READ "${FOLDER}/page.css" style)
file(READ "${FOLDER}/page.js" script)
if("${style}${script}" MATCHES "</s" OR "${page}${style}${script}" MATCHES "\\)pumice\"")
  message(FATAL_ERROR "${FOLDER}: what ends an element or the literal cannot be embedded")
endif()
source_of("${style}" style_source)
source_of("${script}" script_source)
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE "${OUT}" "// Written by tools/serve/status/embed.cmake.
#include \"tools/serve/status/status_page.hpp\"

namespace pumice::serve {

const StatusPage& status_page() {
  static constexpr StatusPage kPage{
      .html = R\"pumice(${page})pumice\",
      .policy =
          \"default-src 'none'; script-src ${script_source}; style-src ${style_source}; img-src data:; \"
          \"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\"};
  return kPage;
}

}  // namespace pumice::serve
")
