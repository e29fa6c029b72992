// What is in the picture: three characters, each a box that turns, and speech bubbles with text in
// a tiny font.
#pragma once

#include <glm/glm.hpp>
#include <string_view>
#include <vector>

#include "renderer.hpp"

class Picture {
 public:
  /// A rectangle; pixels, y down.
  void rectangle(glm::vec2 corner, glm::vec2 size, glm::vec4 color);

  /// Upper-case text of 3×5 dots a character, in lines of `columns`; only the last `rows` of them.
  void text(glm::vec2 corner, std::string_view text, size_t columns, size_t rows, glm::vec4 color);

  /// A box around `center` (pixels), turned by `angle` (radians) and seen in perspective.
  void box(glm::vec2 center, float angle, float pixels, glm::vec4 color);

  const std::vector<Vertex>& vertices() const { return vertices_; }

 private:
  void quad(const glm::vec2 (&corners)[4], glm::vec4 color);

  std::vector<Vertex> vertices_;
};
