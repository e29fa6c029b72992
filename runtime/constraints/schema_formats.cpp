// The formats of JSON Schema and OpenAPI as regular expressions. Where a format's own grammar is larger (RFC 5322's quoted
// local parts, addresses in brackets, dates that readers disagree about) these are the texts that every validator takes.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "constraints/schema_texts.hpp"

namespace pumice::schema {
namespace {

// <name> in these and in what follows stands for the expression of that name.
constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"date",
     R"(((\d{3}[1-9]|\d{2}[1-9]0|\d[1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|)"
     R"((0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|(\d{2}(0[48]|[2468][048]|[1357)"
     R"(9][26])|(0[48]|[2468][048]|[13579][26])00)-02-29))"},
    {"clock", R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?)"},
    {"zone", R"(([Zz]|[+\-]([01]\d|2[0-3]):[0-5]\d))"},
    {"label", R"([A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?)"},
    {"host", R"(<label>(\.<label>)*)"},
    {"octet", R"((25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d))"},
    {"ipv4", R"(<octet>(\.<octet>){3})"},
    {"hex", R"([0-9A-Fa-f]{1,4})"},
    {"ipv6 end", R"((<hex>:<hex>|<ipv4>))"},
    {"ipv6",
     R"(((<hex>:){6}<ipv6 end>|::(<hex>:){5}<ipv6 end>|(<hex>)?::(<hex>:){4}<ipv6 end>|((<hex)"
     R"(>:){0,1}<hex>)?::(<hex>:){3}<ipv6 end>|((<hex>:){0,2}<hex>)?::(<hex>:){2}<ipv6 end>|()"
     R"((<hex>:){0,3}<hex>)?::<hex>:<ipv6 end>|((<hex>:){0,4}<hex>)?::<ipv6 end>|((<hex>:){0,)"
     R"(5}<hex>)?::<hex>|((<hex>:){0,6}<hex>)?::))"},
    {"percent", R"(%[0-9A-Fa-f]{2})"},
    {"plain", R"(A-Za-z0-9\-._~!$&'()*+,;=)"},
    {"char", R"(([<plain>:@]|<percent>))"},
    {"path", R"((/<char>*)*)"},
    {"authority", R"((([<plain>:]|<percent>)*@)?((<ipv4>|<host>)|\[<ipv6>\])(:\d{1,5})?)"},
    {"tail", R"((\?(<char>|[/?])*)?(#(<char>|[/?])*)?)"},
    {"uri",
     R"([A-Za-z][A-Za-z0-9+\-.]*:(//<authority><path>|/(<char>+<path>)?|<char>+<path>)<tail>)"},
    {"reference",
     R"((<uri>|(//<authority><path>|/(<char>+<path>)?|([<plain>@]|<percent>)+<path>)?<ta)"
     R"(il>))"},
    {"variable", R"([A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(:[1-9]\d{0,3}|\*)?)"},
    {"pointer", R"((/([^/~]|~[01])*)*)"},
};

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date-time", R"(<date>[Tt]<clock><zone>)"},
    {"date", R"(<date>)"},
    {"time", R"(<clock><zone>)"},
    {"duration",
     R"(P((\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?)(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|)"
     R"(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)|\d+W))"},
    {"email", R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+)*@<host>)"},
    {"idn-email",
     R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+)*@<host>)"},
    {"hostname", R"(<host>)"},
    {"host-name", R"(<host>)"},
    {"idn-hostname", R"(<host>)"},
    {"ipv4", R"(<ipv4>)"},
    {"ip-address", R"(<ipv4>)"},
    {"ipv6", R"(<ipv6>)"},
    {"uuid", R"([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})"},
    {"uri", R"(<uri>)"},
    {"url", R"(<uri>)"},
    {"iri", R"(<uri>)"},
    {"uri-reference", R"(<reference>)"},
    {"iri-reference", R"(<reference>)"},
    {"uri-template",
     R"(([A-Za-z0-9\-._~:/?#\[\]@!$&()*+,;=]|<percent>|\{[+#./;?&]?<variable>(,<varia)"
     R"(ble>)*\})*)"},
    {"json-pointer", R"(<pointer>)"},
    {"relative-json-pointer", R"((0|[1-9]\d*)(#|<pointer>))"},
    {"byte", R"(([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"},
    {"utc-millisec", R"([\s\S]*)"},
    {"password", R"([\s\S]*)"},
    {"binary", R"([\s\S]*)"},
};

/// Of the formats of which more texts may be taken for them: what any of those look like. Others may be anything.
constexpr std::pair<std::string_view, std::string_view> kMost[] = {
    {"date-time", R"(\d{4}-\d{2}-\d{2}[Tt ].*)"},
    {"date", R"(\d{4}-\d{2}-\d{2})"},
    {"time", R"(\d{2}:.*)"},
    {"duration", R"(P.*)"},
    {"email", R"([\s\S]*@[\s\S]*)"},
    {"ipv4", R"([0-9.]*)"},
    {"ipv6", R"([0-9A-Fa-f:.]*)"},
    {"uuid", R"([0-9A-Fa-f\-]{36})"},
    {"uri", R"([A-Za-z][A-Za-z0-9+.\-]*:[\s\S]*)"},
    {"password", R"([\s\S]*)"},
    {"binary", R"([\s\S]*)"},
};

std::string_view find(std::span<const std::pair<std::string_view, std::string_view>> regexes,
                      std::string_view name) {
  const auto found =
      std::ranges::find(regexes, name, &std::pair<std::string_view, std::string_view>::first);
  return found == regexes.end() ? std::string_view() : found->second;
}

std::string expanded(std::string_view regex) {
  std::string whole;
  for (size_t at = 0; at < regex.size();) {
    const size_t open = std::min(regex.find('<', at), regex.size());
    whole += regex.substr(at, open - at);
    if (open == regex.size()) break;
    const size_t close = regex.find('>', open);
    whole += expanded(find(kParts, regex.substr(open + 1, close - open - 1)));
    at = close + 1;
  }
  return whole;
}

}  // namespace

FormatRegexes format_regexes(std::string_view name) {
  FormatRegexes regexes;
  regexes.some = expanded(find(kFormats, name));
  const std::string_view most = find(kMost, name);
  regexes.most = most.empty() ? R"([\s\S]*)" : most;
  const bool has_host = name.find("host") != name.npos || name.find("email") != name.npos;
  if (has_host) regexes.max_length = 253;
  return regexes;
}

}  // namespace pumice::schema
