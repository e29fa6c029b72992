#include "picture.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <glm/gtc/matrix_transform.hpp>
#include <string>

namespace {

constexpr float kDot = 2;  // pixels
constexpr float kColumn = 4 * kDot, kRow = 7 * kDot;

/// Five rows of three dots, an octal digit each, the left dot 4.
struct Glyph {
  char character;
  uint16_t rows;
};
constexpr Glyph kFont[] = {
    {'A', 025755}, {'B', 065656}, {'C', 034443}, {'D', 065556}, {'E', 074647}, {'F', 074644},
    {'G', 034553}, {'H', 055755}, {'I', 072227}, {'J', 011152}, {'K', 055655}, {'L', 044447},
    {'M', 057755}, {'N', 065555}, {'O', 025552}, {'P', 065644}, {'Q', 025563}, {'R', 065655},
    {'S', 034216}, {'T', 072222}, {'U', 055557}, {'V', 055552}, {'W', 055775}, {'X', 055255},
    {'Y', 055222}, {'Z', 071247}, {'0', 075557}, {'1', 026227}, {'2', 061247}, {'3', 061216},
    {'4', 055711}, {'5', 074616}, {'6', 034652}, {'7', 071122}, {'8', 025252}, {'9', 025316},
    {'.', 000002}, {',', 000024}, {'!', 022202}, {'?', 061202}, {'-', 000700}, {'"', 055000},
    {':', 002020}, {';', 002024}, {'\'', 022000}};

uint16_t rows_of(char character) {
  const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  const auto found =
      std::ranges::find_if(kFont, [&](const Glyph& glyph) { return glyph.character == upper; });
  return found != std::end(kFont) ? found->rows : 0;
}

glm::vec2 to_clip(glm::vec2 pixels) {
  return 2.0f * pixels / glm::vec2(Renderer::kWidth, Renderer::kHeight) - 1.0f;
}

/// Lines of at most `columns`, broken between words where there are any.
std::vector<std::string> wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const size_t length = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, std::min(length, columns));
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > columns) {
      lines.emplace_back();
    }
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
    text.remove_prefix(word.size());
    if (word.size() == length && !text.empty()) text.remove_prefix(1);  // the space
  }
  return lines;
}

}  // namespace

void Picture::quad(const glm::vec2 (&corners)[4], glm::vec4 color) {
  for (const int i : {0, 1, 2, 0, 2, 3}) vertices_.push_back({to_clip(corners[i]), color});
}

void Picture::rectangle(glm::vec2 corner, glm::vec2 size, glm::vec4 color) {
  const glm::vec2 corners[4] = {corner, corner + glm::vec2(size.x, 0), corner + size,
                                corner + glm::vec2(0, size.y)};
  quad(corners, color);
}

void Picture::text(glm::vec2 corner, std::string_view text, size_t columns, size_t rows,
                   glm::vec4 color) {
  const std::vector<std::string> lines = wrap(text, columns);
  const size_t first = lines.size() > rows ? lines.size() - rows : 0;
  for (size_t line = first; line < lines.size(); ++line) {
    for (size_t column = 0; column < lines[line].size(); ++column) {
      const uint16_t dots = rows_of(lines[line][column]);
      const glm::vec2 place = corner + glm::vec2(static_cast<float>(column) * kColumn,
                                                 static_cast<float>(line - first) * kRow);
      for (uint32_t dot = 0; dot < 15; ++dot) {
        if ((dots >> (14 - dot) & 1) == 0) continue;
        const glm::vec2 offset(static_cast<float>(dot % 3), static_cast<float>(dot / 3));
        rectangle(place + kDot * offset, glm::vec2(kDot), color);
      }
    }
  }
}

void Picture::box(glm::vec2 center, float angle, float pixels, glm::vec4 color) {
  glm::mat4 turned = glm::translate(glm::mat4(1), glm::vec3(0, 0, -4));
  turned = glm::rotate(turned, 0.5f, glm::vec3(1, 0, 0));
  turned = glm::rotate(turned, angle, glm::vec3(0, 1, 0));
  const glm::mat4 lens = glm::perspective(glm::radians(45.0f), 1.0f, 0.1f, 10.0f);
  // Faces that look away are left out, so the others need no order.
  for (int axis = 0; axis < 3; ++axis) {
    for (const float side : {-1.0f, 1.0f}) {
      glm::vec3 normal(0), u(0), v(0);
      normal[axis] = side;
      u[(axis + 1) % 3] = 1;
      v[(axis + 2) % 3] = 1;
      const glm::vec3 middle(turned * glm::vec4(normal, 1));
      const glm::vec3 outward(turned * glm::vec4(normal, 0));
      if (glm::dot(middle, outward) >= 0) continue;
      glm::vec2 corners[4];
      const glm::vec3 offsets[4] = {-u - v, u - v, u + v, v - u};
      for (int i = 0; i < 4; ++i) {
        const glm::vec4 seen = lens * turned * glm::vec4(normal + offsets[i], 1);
        corners[i] = center + pixels * glm::vec2(seen.x, -seen.y) / seen.w;
      }
      const float light =
          0.45f + 0.55f * std::max(0.0f, glm::dot(outward, glm::vec3(0.3f, 0.6f, 0.74f)));
      quad(corners, glm::vec4(light * glm::vec3(color), 1));
    }
  }
}
