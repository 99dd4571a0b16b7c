// Command worker builds the sexton binary.
package main

import (
	"os"

	"sexton/internal/cli/root"
)

func main() {
	os.Exit(root.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
