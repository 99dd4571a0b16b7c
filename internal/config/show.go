package config

import (
	"path/filepath"

	"sexton/internal/yamlfile"
)

// Show returns the effective configuration: every key with its value, secrets as ***, limits as they apply,
// paths absolute. Its YAML method renders a file that Load reads once the secrets are back in place;
// as JSON it is one object with the same keys, in the same order.
func (c *Config) Show() yamlfile.Shown {
	shown := *c
	shown.Databases = make([]Database, len(c.Databases))
	for i, d := range c.Databases {
		d.Limits = d.EffectiveLimits()
		shown.Databases[i] = d
	}
	shown.LooseForeignKeys.Definitions = make([]string, len(c.LooseForeignKeys.Definitions))
	for i, path := range c.LooseForeignKeys.Definitions {
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		shown.LooseForeignKeys.Definitions[i] = path
	}
	// What a file says is not said twice.
	showFile(&shown.HTTP.PasswordFile, &shown.HTTP.Password)
	showFile(&shown.HTTP.TokenFile, &shown.HTTP.Token)
	return yamlfile.Encode(shown)
}

func showFile(path *string, secret *Secret) {
	if *path == "" {
		return
	}
	*secret = ""
	if absolute, err := filepath.Abs(*path); err == nil {
		*path = absolute
	}
}
