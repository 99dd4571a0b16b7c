//go:build !linux

package run

func dropPages() {}
