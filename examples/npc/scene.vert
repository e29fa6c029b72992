#version 460
layout(location = 0) in vec2 position;  // in the picture: -1 to 1, y down
layout(location = 1) in vec4 color;
layout(location = 0) out vec4 shade;

void main() {
  gl_Position = vec4(position, 0, 1);
  shade = color;
}
