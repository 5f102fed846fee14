/* image.c: PGM and PNG as rdmactl gpu quantize reads them. */
#include "ctl/ctl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long: a read behind it is seen. */
	uint8_t *bytes = malloc(size ? size : 1);
	struct image image;
	char why[160];

	REQUIRE(bytes);
	if (size)
		memcpy(bytes, data, size);
	if (!image_parse(bytes, size, &image, why, sizeof(why))) {
		REQUIRE(image.width && image.height);
		memset(image.pixels, 0, (size_t)image.width * image.height); /* all of them are there */
		image_release(&image);
	} else {
		REQUIRE(!image.pixels);
	}
	free(bytes);
	return 0;
}
