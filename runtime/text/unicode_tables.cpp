#include "text/unicode_tables.hpp"

namespace pumice {
namespace {

#include "text/unicode_tables.inc"

}  // namespace

const UnicodeTables& unicode_tables() {
  static constexpr UnicodeTables kTables = {kPunctuation, kNonspacingMarks, kControls,
                                            kLowerCase,   kBases,           kBaseSequences};
  return kTables;
}

}  // namespace pumice
