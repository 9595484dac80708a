import os

from spack.package import *


class Shmem(Package):
    """OpenSHMEM 1.6 for Rust, C and C++: connections between nodes are made when two processes first
    talk, and the launcher starts thousands of processes in seconds."""

    # `cargo xtask dist --source` makes the archive.
    url = "file://" + os.path.join(
        os.path.dirname(__file__), "../../../../target/packages/shmem-0.1.0.tar.gz"
    )
    license("MIT OR Apache-2.0")

    # A checksum stands here when a release has one: spack checksum shmem
    version("0.1.0")

    depends_on("c", type=("build", "run"))
    depends_on("rust@1.95:", type="build")
    # For RDMA devices programs load the libibverbs that the dynamic linker finds, which is the site's.

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        env.set("SHMEM_ROOT", self.prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.oshcc)("-o", "hello", "examples/c/hello.c")
        Executable(self.prefix.bin.oshrun)("-np", "2", "./hello")
