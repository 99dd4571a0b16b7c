//go:build ignore

// fetch_main prints the folder of the server binaries of a major version. It downloads
// them if necessary. Usage: go run internal/devpg/fetch_main.go 16
package main

import (
	"context"
	"fmt"
	"os"

	"sexton/internal/devpg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fetch_main MAJOR")
		os.Exit(2)
	}
	dir, err := devpg.Fetch(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
