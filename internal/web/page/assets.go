package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
)

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// asset is one file, known by its content.
type asset struct {
	content []byte
	kind    string
	version string
}

// assets are the files that the page loads, by name. htmx and uPlot are as published on npm, their licences beside them.
type assets map[string]asset

func loadAssets() (assets, error) {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, fmt.Errorf("list assets: %w", err)
	}
	all := assets{}
	for _, entry := range entries {
		content, err := assetFiles.ReadFile(path.Join("assets", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read asset %s: %w", entry.Name(), err)
		}
		sum := sha256.Sum256(content)
		all[entry.Name()] = asset{content: content, kind: mime.TypeByExtension(path.Ext(entry.Name())), version: hex.EncodeToString(sum[:6])}
	}
	return all, nil
}

// url is where a file is. It changes with the content, so that browsers may keep it.
func (a assets) url(name string) (string, error) {
	file, ok := a[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return "/assets/" + name + "?v=" + file.version, nil
}

func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	file, ok := a[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	_, _ = w.Write(file.content)
}
