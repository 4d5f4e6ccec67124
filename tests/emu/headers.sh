#!/bin/sh
# headers.sh FOLDER: NVIDIA's headers that the emulator needs, from their wheels on PyPI (5.5 MB), into FOLDER.
set -eu
to=$1
command -v unzip >/dev/null || { echo "headers.sh: unzip is not here" >&2; exit 69; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for p in nvidia-cuda-runtime==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85; do
	pip download --no-deps -q -d "$tmp" "$p" >&2 || { echo "headers.sh: pip could not fetch $p" >&2; exit 69; }
done
( cd "$tmp" && sha256sum -c --quiet ) <<-END
	e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649  nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
	2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4  nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
	422a38f7c739ecbdd3a4b6ec7ed0a1d74db43d8e9bc26685f3d845638922b178  nvidia_cuda_runtime-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
END
for w in "$tmp"/*.whl; do
	unzip -q -o "$w" 'nvidia/cu13/include/*.h' 'nvidia/cu13/include/*.hpp' 'nvidia/cu13/include/crt/*' 'nvidia/cu13/include/nv/*' \
		-d "$tmp/all" 2>/dev/null || [ $? -eq 11 ]
done
rm -rf "$to"
mkdir -p "$(dirname "$to")"
mv "$tmp/all/nvidia/cu13/include" "$to"
