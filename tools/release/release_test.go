package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/blakesmith/ar"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// dist is the folder of the release v0.0.0-ci, which .ci/run builds before this test.
var dist = os.Getenv("DIST")

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// unpack writes the files of an archive into a folder.
func unpack(t *testing.T, archive io.Reader, folder string) {
	t.Helper()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, must(io.ReadAll(files))(t), header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// readImage returns the image for this machine from a release's archive. It fails the
// test if the archive records times or owners.
func readImage(t *testing.T, folder string) (image v1.Image) {
	t.Helper()
	packed, unpacked := must(os.ReadFile(filepath.Join(folder, "sexton_v0.0.0-ci_oci.tar")))(t), t.TempDir()
	unpack(t, bytes.NewReader(packed), unpacked)
	for files := tar.NewReader(bytes.NewReader(packed)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || header.ModTime.Unix() != 0 || header.Uid != 0 {
			t.Fatalf("%v: %+v", err, header)
		}
	}
	outer := must(must(layout.ImageIndexFromPath(unpacked))(t).IndexManifest())(t)
	if len(outer.Manifests) != 1 || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v0.0.0-ci" {
		t.Fatalf("the archive must have one image with the version as its name: %+v", outer.Manifests)
	}
	inner := must(must(layout.ImageIndexFromPath(unpacked))(t).ImageIndex(outer.Manifests[0].Digest))(t)
	for _, manifest := range must(inner.IndexManifest())(t).Manifests {
		if manifest.Platform.OS == runtime.GOOS && manifest.Platform.Architecture == runtime.GOARCH {
			image = must(inner.Image(manifest.Digest))(t)
		}
	}
	return image
}

// The program starts in a root folder that has only the files of the image.
func TestImageStarts(t *testing.T) {
	image, root := readImage(t, dist), t.TempDir()
	config := must(image.ConfigFile())(t).Config
	unpack(t, mutate.Extract(image), root)
	cmd := exec.Command(config.Entrypoint[0], "version")
	cmd.Env, cmd.Dir = config.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Getuid() != 0 { // Only root may change the root folder.
		cmd.Path, cmd.SysProcAttr = filepath.Join(root, config.Entrypoint[0]), nil
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "sexton v0.0.0-ci (") {
		t.Fatalf("%v: %s", err, out)
	}
	if config.User != "65532:65532" || config.Cmd[0] != "run" {
		t.Fatalf("%+v", config)
	}
}

func TestModulesAreListed(t *testing.T) {
	var bom cdx.BOM
	text := must(os.Open(filepath.Join(dist, "sexton_v0.0.0-ci_linux_amd64.cdx.json")))(t)
	if err := cdx.NewBOMDecoder(text, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	for _, c := range *bom.Components {
		if strings.HasPrefix(c.PackageURL, "pkg:golang/github.com/jackc/pgx/v5@v5.") && len(*c.Hashes) == 1 &&
			len((*c.Hashes)[0].Value) == 64 {
			return
		}
	}
	t.Fatal("pgx is not listed with its sum")
}

func TestPackagesExist(t *testing.T) {
	for name, prefix := range map[string]string{
		"amd64.deb": "!<arch>\n", "arm64.deb": "!<arch>\n",
		"amd64.rpm": "\xed\xab\xee\xdb", "arm64.rpm": "\xed\xab\xee\xdb",
	} {
		text := must(os.ReadFile(filepath.Join(dist, "sexton_v0.0.0-ci_linux_"+name)))(t)
		if !bytes.HasPrefix(text, []byte(prefix)) || len(text) < 1<<20 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	// The package contains the systemd unit and the documents that the alerts link to.
	members, data, root := ar.NewReader(must(os.Open(filepath.Join(dist, "sexton_v0.0.0-ci_linux_amd64.deb")))(t)),
		&ar.Header{}, t.TempDir()
	for data.Name != "data.tar.gz" {
		data = must(members.Next())(t)
	}
	unpack(t, must(gzip.NewReader(members))(t), root)
	for installed, source := range map[string]string{
		"usr/lib/systemd/system/sexton.service":   "deploy/systemd/sexton.service",
		"usr/share/doc/sexton/docs/operations.md": "docs/operations.md",
		"usr/share/doc/sexton/README.md":          "README.md",
		"usr/share/doc/sexton/docs/page-dark.png": "docs/page-dark.png",
	} {
		if !bytes.Equal(must(os.ReadFile(filepath.Join(root, installed)))(t),
			must(os.ReadFile(filepath.Join("..", "..", source)))(t)) {
			t.Errorf("%s differs from %s", installed, source)
		}
	}
}

// Debian's rpm requires --force-debian to install. The package has no dependencies that
// rpm could miss.
func TestRPMIsInstalledAndRemoved(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Fatal("rpm is not installed: apt-get install rpm")
	}
	root := t.TempDir()
	rpm := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("rpm", append([]string{"--root", root}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("rpm %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	rpm("--initdb")
	rpm("--install", "--force-debian", "--nosignature",
		filepath.Join(dist, "sexton_v0.0.0-ci_linux_"+runtime.GOARCH+".rpm"))
	if out, err := exec.Command(filepath.Join(root, "usr/bin/sexton"), "version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "sexton v0.0.0-ci (") {
		t.Errorf("%v: %s", err, out)
	}
	if name := rpm("--query", "--queryformat", "%{NAME} %{LICENSE}", "sexton"); name != "sexton MPL-2.0" {
		t.Error(name)
	}
	if changes := rpm("--verify", "sexton"); changes != "" {
		t.Errorf("installed files differ from the package: %s", changes)
	}
	rpm("--erase", "--force-debian", "sexton")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/sexton")); !os.IsNotExist(err) {
		t.Errorf("the program was not removed: %v", err)
	}
}

// A second release of the same binary has the same bytes, so that users can compare
// checksums.
func TestReleaseIsReproducible(t *testing.T) {
	again, name := t.TempDir(), "sexton_v0.0.0-ci_linux_"+runtime.GOARCH
	if err := os.WriteFile(filepath.Join(again, name), must(os.ReadFile(filepath.Join(dist, name)))(t),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	if err := release("v0.0.0-ci", again); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{".cdx.json", ".deb", ".rpm"} {
		if !bytes.Equal(must(os.ReadFile(filepath.Join(dist, name+kind)))(t),
			must(os.ReadFile(filepath.Join(again, name+kind)))(t)) {
			t.Errorf("%s differs", name+kind)
		}
	}
	if want, got := must(readImage(t, dist).Digest())(t), must(readImage(t, again).Digest())(t); want != got {
		t.Errorf("image %s differs from %s", got, want)
	}
	if !bytes.Contains(must(os.ReadFile(filepath.Join(again, name+".rpm")))(t), []byte("localhost\x00")) {
		t.Error("the rpm contains the name of the machine that built it")
	}
}

// decodeManifest decodes the first document of a kind from a file in deploy/kubernetes.
// Unknown keys fail the test.
func decodeManifest[T any](t *testing.T, file, kind string) T {
	t.Helper()
	text := string(must(os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes", file)))(t))
	for document := range strings.SplitSeq(text, "\n---\n") {
		var value T
		if !strings.Contains(document, "\nkind: "+kind+"\n") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &value); err != nil {
			t.Fatalf("%s, %s: %v", file, kind, err)
		}
		return value
	}
	t.Fatalf("%s has no %s", file, kind)
	panic("unreachable")
}

func TestManifestsMatchTheKubernetesTypes(t *testing.T) {
	secret, service := decodeManifest[core.Secret](t, "worker.yaml", "Secret"),
		decodeManifest[core.Service](t, "worker.yaml", "Service")
	config, monitor := decodeManifest[core.ConfigMap](t, "worker.yaml", "ConfigMap"),
		decodeManifest[monitoring.ServiceMonitor](t, "servicemonitor.yaml", "ServiceMonitor")
	deployment, install := decodeManifest[apps.Deployment](t, "worker.yaml", "Deployment"),
		decodeManifest[batch.Job](t, "install.yaml", "Job")

	pod := deployment.Spec.Template
	for _, selector := range []map[string]string{deployment.Spec.Selector.MatchLabels, service.Spec.Selector} {
		if len(selector) == 0 || selector["app.kubernetes.io/name"] != pod.Labels["app.kubernetes.io/name"] {
			t.Errorf("%v selects no worker", selector)
		}
	}
	worker, endpoint := pod.Spec.Containers[0], monitor.Spec.Endpoints[0]
	for name, port := range map[string]string{
		"liveness": worker.LivenessProbe.HTTPGet.Port.StrVal, "readiness": worker.ReadinessProbe.HTTPGet.Port.StrVal,
		"service": service.Spec.Ports[0].TargetPort.StrVal,
	} {
		if port != worker.Ports[0].Name {
			t.Errorf("%s uses port %q, the worker has %q", name, port, worker.Ports[0].Name)
		}
	}
	if monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != service.Labels["app.kubernetes.io/name"] ||
		endpoint.Port != service.Spec.Ports[0].Name {
		t.Error("the monitor selects no service")
	}
	credentials := endpoint.HTTPConfigWithProxyAndTLSFiles.HTTPConfigWithTLSFiles.Authorization.Credentials
	if _, found := secret.StringData[credentials.Key]; !found || credentials.Name != secret.Name {
		t.Errorf("the secret has no credentials for the monitor: %+v", credentials)
	}
	if install.Name != "" || install.GenerateName == "" {
		t.Error("the job must use generateName, because the next release could not change a job of the same name")
	}
	for _, spec := range []core.PodSpec{pod.Spec, install.Spec.Template.Spec} {
		if *spec.SecurityContext.RunAsUser != 65532 || spec.Volumes[0].ConfigMap.Name != config.Name {
			t.Errorf("%+v", spec)
		}
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			if !*c.SecurityContext.ReadOnlyRootFilesystem || c.VolumeMounts[0].MountPath != "/etc/sexton" {
				t.Errorf("%+v", c)
			}
		}
	}
}
