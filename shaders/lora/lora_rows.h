// How a workgroup of either kernel shares out rows.
#ifndef PUMICE_SHADERS_LORA_ROWS_H
#define PUMICE_SHADERS_LORA_ROWS_H

// Neighbouring rows that a workgroup takes: of one adapter they read its numbers once.
#define LORA_ROWS 4

#endif
