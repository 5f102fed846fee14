/*
 * image.c: what nvcc made of kernel.cu, if configure found one. The file is in the build
 * folder; the assembler copies it.
 */
#include "config.h"
#include "gpu/cuda/api.h"

#ifdef RDMAD_CUDA_IMAGE
__asm__(".section .rodata\n"
	".balign 64\n"
	".globl cuda_image_bytes\n"
	".hidden cuda_image_bytes\n"
	"cuda_image_bytes:\n"
	".incbin \"" RDMAD_CUDA_IMAGE "\"\n"
	".byte 0\n"
	".previous\n");

extern const char cuda_image_bytes[] __attribute__((visibility("hidden")));

const void *cuda_image(void)
{
	return cuda_image_bytes;
}
#else
const void *cuda_image(void)
{
	return NULL;
}
#endif
