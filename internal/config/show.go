package config

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Shown is a configuration for printing. It contains all keys in their order, and no
// secrets.
type Shown struct{ sections yaml.MapSlice }

// Show returns the effective configuration. Secrets are ***, limits of the pace are
// filled in, and paths are absolute.
func (c *Config) Show() Shown {
	shown := *c
	shown.LooseForeignKeys.Definitions = nil
	for _, path := range c.LooseForeignKeys.Definitions {
		shown.LooseForeignKeys.Definitions = append(shown.LooseForeignKeys.Definitions, absolute(path))
	}
	// If a secret comes from a file, only the path of the file is shown.
	if path := &shown.HTTP.PasswordFile; *path != "" {
		*path, shown.HTTP.Password = absolute(*path), ""
	}
	if path := &shown.HTTP.TokenFile; *path != "" {
		*path, shown.HTTP.Token = absolute(*path), ""
	}
	var s Shown
	// Marshaling cannot fail: TestShowHasEveryKeyWithItsDefault encodes every type of
	// Config.
	text, _ := yaml.MarshalWithOptions(shown, yaml.CustomMarshaler[[]Database](encodeDatabases),
		yaml.CustomMarshaler[time.Duration](encodeDuration), yaml.CustomMarshaler[string](quoteText))
	_ = yaml.UnmarshalWithOptions(text, &s.sections, yaml.UseOrderedMap())
	return s
}

// quoteText quotes every text. The YAML library does not quote some texts that it then
// reads as mappings.
func quoteText(s string) ([]byte, error) { return json.Marshal(s) }

func absolute(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

func encodeDatabases(all []Database) ([]byte, error) {
	var databases yaml.MapSlice
	for _, d := range all {
		d.Limits = d.EffectiveLimits()
		databases = append(databases, yaml.MapItem{Key: d.Name, Value: d})
	}
	return yaml.MarshalWithOptions(databases, yaml.CustomMarshaler[time.Duration](encodeDuration),
		yaml.CustomMarshaler[string](quoteText))
}

var emptyTail = regexp.MustCompile(`(h)0m0s$|(m)0s$`)

// encodeDuration removes trailing zero units: it returns 30m instead of 30m0s.
func encodeDuration(d time.Duration) ([]byte, error) {
	return []byte(emptyTail.ReplaceAllString(d.String(), "$1$2")), nil
}

// Enabled returns the configuration without the keys of disabled sections. A disabled
// section has only the key enabled.
func (s Shown) Enabled() Shown {
	var out Shown
	for _, section := range s.sections {
		if keys, ok := section.Value.(yaml.MapSlice); ok && len(keys) > 0 && keys[0].Value == false {
			section.Value = keys[:1]
		}
		out.sections = append(out.sections, section)
	}
	return out
}

// YAML returns a configuration file. Load accepts it after *** is replaced by the
// secrets.
func (s Shown) YAML() []byte {
	text, _ := yaml.MarshalWithOptions(s.sections, yaml.IndentSequence(true), yaml.CustomMarshaler[string](encodeText))
	return text
}

var (
	plain = regexp.MustCompile(`^([A-Za-z_/][A-Za-z0-9_./-]*|([0-9.]+(ns|µs|ms|s|m|h))+)$`)
	// word matches the words that YAML 1.1 does not read as texts.
	word = regexp.MustCompile(`^(?i)(true|false|null|yes|no|on|off|y|n)$`)
)

// encodeText quotes a text unless YAML reads it as the same text without quotes.
func encodeText(text string) ([]byte, error) {
	text = strings.ReplaceAll(text, "${", "$${")
	if plain.MatchString(text) && !word.MatchString(text) {
		return []byte(text), nil
	}
	return json.Marshal(text)
}

// MarshalJSON returns a JSON object with the keys in their order.
func (s Shown) MarshalJSON() ([]byte, error) {
	return yaml.MarshalWithOptions(s.sections, yaml.JSON(), yaml.CustomMarshaler[string](quoteText))
}
