// Command release creates the other files of a release from its binaries: lists of their
// modules, packages and a container image. deploy/release runs it in the root of the
// project with the version and the folder of the binaries. The output is reproducible:
// the same binaries give the same files, byte for byte. SOURCE_DATE_EPOCH sets the time
// in packages.
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/goreleaser/nfpm/v2"
	// These imports register the deb and rpm formats with nfpm.
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if err := release(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(version, folder string) error {
	prefix := filepath.Join(folder, "sexton_"+version+"_")
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	images := false
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		binary := prefix + platform
		if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := listModules(binary, version); err != nil {
			return fmt.Errorf("list the modules of %s: %w", binary, err)
		}
		arch, linux := strings.CutPrefix(platform, "linux_")
		if !linux {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := makePackage(format, binary, version, arch); err != nil {
				return fmt.Errorf("make the %s of %s: %w", format, binary, err)
			}
		}
		image, err := makeImage(binary, version, arch)
		if err != nil {
			return fmt.Errorf("make the image of %s: %w", binary, err)
		}
		descriptor := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}
		index, images = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: descriptor}), true
	}
	if !images {
		return nil
	}
	return writeImages(prefix+"oci.tar", version, index)
}

// listModules writes the modules that the linker recorded in a binary to a file in the
// format CycloneDX.
func listModules(binary, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	module := func(name, version string) cdx.Component {
		url := "pkg:golang/" + name + "@" + version
		return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url}
	}
	components := []cdx.Component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := module(m.Path, m.Version)
		// go.sum has the SHA-256 of all files of the module, in base64. CycloneDX
		// requires it in hexadecimal digits.
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		components = append(components, c)
	}
	bom := cdx.NewBOM()
	program := module("sexton", version)
	program.Type = cdx.ComponentTypeApplication
	bom.Metadata, bom.Components = &cdx.Metadata{Component: &program}, &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(binary+".cdx.json", out.Bytes(), 0o644)
}

// makePackage writes a deb or rpm package of a binary, configured by deploy/nfpm.yaml.
func makePackage(format, binary, version, arch string) error {
	values := map[string]string{"BINARY": binary, "VERSION": version, "GOARCH": arch}
	config, err := nfpm.ParseFileWithEnvMapping("deploy/nfpm.yaml", func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(nfpm.WithDefaults(info), &out); err != nil {
		return err
	}
	return os.WriteFile(binary+"."+format, out.Bytes(), 0o644)
}

// makeImage returns an image with the binary and the certificates for TLS, and nothing
// else, like the image of deploy/Dockerfile.
func makeImage(binary, version, arch string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var certificates []byte
	for _, path := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/cert.pem",
	} {
		if certificates, err = os.ReadFile(path); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find TLS certificates (install ca-certificates): %w", err)
	}
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	for _, file := range []struct {
		name string
		mode int64
		text []byte
	}{{"sexton", 0o755, program}, {"etc/ssl/certs/ca-certificates.crt", 0o644, certificates}} {
		err = errors.Join(err, add(archive, file.name, file.mode, file.text))
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error,
	) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/etc/sexton", Entrypoint: []string{"/sexton"}, Cmd: []string{"run"},
		ExposedPorts: map[string]struct{}{"8686/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":   "sexton",
			"org.opencontainers.image.version": version,
		},
	}
	return mutate.ConfigFile(image, config)
}

// writeImages writes the images to one archive that podman, skopeo and docker can load,
// under the version's name.
func writeImages(path, version string, index v1.ImageIndex) (err error) {
	dir, err := os.MkdirTemp("", "sexton-image-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	outer, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})
	if err := outer.AppendIndex(index, named); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(file)
	// archive.AddFS would record times and owners, so that a second build would give
	// another file.
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		return errors.Join(err, add(archive, name, 0o644, text))
	})
	return errors.Join(err, archive.Close(), file.Close())
}

// add appends a file to the archive without time and owner.
func add(archive *tar.Writer, name string, mode int64, text []byte) error {
	err := archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))})
	_, writeErr := archive.Write(text)
	return errors.Join(err, writeErr)
}
