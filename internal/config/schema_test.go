package config_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/yamlfile"
)

// The JSON schemas for editors match the structs, their tags and comments. With -update,
// the test writes the schemas.
func TestSchemasFollowTheStructs(t *testing.T) {
	t.Parallel()
	const draft = "http://json-schema.org/draft-07/schema#"
	ours := schemaOf(reflect.TypeFor[config.Config](), comments(t, "config.go", "components.go"), true)
	ours["$schema"], ours["title"] = draft, "Configuration of Sexton"
	entry := schemaOf(reflect.TypeFor[definitions.Definition](), comments(t, "../definitions/definition.go"), false)
	for path, schema := range map[string]map[string]any{
		"schema.json": ours,
		"../definitions/schema.json": {
			"$schema": draft, "title": "Loose foreign keys, by child table", "type": "object",
			"additionalProperties": map[string]any{"type": "array", "minItems": 1, "items": entry},
		},
	} {
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "\t")
		require.NoError(t, encoder.Encode(schema))
		if *update {
			require.NoError(t, os.WriteFile(path, want.Bytes(), 0o600))
			continue
		}
		require.Equal(t, want.String(), string(pgtest.Must(os.ReadFile(path))(t)),
			"go test ./internal/config -run TestSchemasFollowTheStructs -update")
	}
}

// comments returns the comments above the fields of structs in Go files. The keys have
// the form Struct.Field.
func comments(t *testing.T, files ...string) map[string]string {
	comments := map[string]string{}
	structure := regexp.MustCompile(`(?ms)^type (\w+) struct \{\n(.*?)^\}`)
	field := regexp.MustCompile(`(?m)((?:^\t//.*\n)+)^\t(\w+) `)
	for _, file := range files {
		source := string(pgtest.Must(os.ReadFile(file))(t))
		for _, of := range structure.FindAllStringSubmatch(source, -1) {
			for _, found := range field.FindAllStringSubmatch(of[2], -1) {
				text := strings.ReplaceAll(found[1], "\t//", "")
				comments[of[1]+"."+found[2]] = strings.Join(strings.Fields(text), " ")
			}
		}
	}
	return comments
}

// schemaOf returns the JSON schema of a struct that yamlfile decodes. If variables is
// set, ${VARIABLE} is accepted in place of any value.
func schemaOf(t reflect.Type, comments map[string]string, variables bool) map[string]any {
	properties, required := map[string]any{}, []string{}
	for field := range t.Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		var property map[string]any
		switch of := field.Type; {
		case option == "keyed":
			property = map[string]any{"type": "object", "additionalProperties": schemaOf(of.Elem(), comments, variables)}
		case of.Kind() == reflect.Struct:
			property = schemaOf(of, comments, variables)
		case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
			property = map[string]any{"type": "array", "items": schemaOf(of.Elem(), comments, variables)}
		default:
			property = valueSchema(of, field.Tag.Get("check"))
			if variables && (property["type"] != "string" || property["enum"] != nil) {
				property = map[string]any{"anyOf": []any{property, map[string]any{"type": "string", "pattern": `\$\{`}}}
			}
		}
		if text := comments[t.Name()+"."+field.Name]; text != "" {
			property["description"] = withKeys(text, t)
		}
		if standard, found := field.Tag.Lookup("default"); found {
			property["default"] = typed(standard, field.Type.Kind())
		}
		properties[key] = property
		if option == "required" {
			required = append(required, key)
		}
	}
	return map[string]any{
		"type": []string{"object", "null"}, "properties": properties, "required": required, "additionalProperties": false,
	}
}

// withKeys replaces the names of fields in a comment by their YAML keys.
func withKeys(comment string, of reflect.Type) string {
	for field := range of.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		comment = regexp.MustCompile(`\b`+field.Name+`\b`).ReplaceAllString(comment, key)
	}
	return comment
}

func valueSchema(t reflect.Type, check string) map[string]any {
	str := map[string]any{"type": "string"}
	switch of := reflect.Zero(t).Interface().(type) {
	case time.Duration:
		return str
	case yamlfile.Literal:
		return map[string]any{"type": []string{"string", "integer", "boolean"}}
	case yamlfile.Texts:
		return map[string]any{"type": []string{"string", "array"}, "items": str}
	case yamlfile.Columns:
		return map[string]any{"type": []string{"boolean", "array"}, "items": str}
	case yamlfile.Chooser:
		return map[string]any{"type": "string", "enum": of.Choices()}
	case encoding.TextMarshaler:
		return map[string]any{"type": []string{"string", "integer"}}
	}
	switch t.Kind() {
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": valueSchema(t.Elem(), "")}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": str}
	case reflect.Int:
		number := map[string]any{"type": "integer"}
		var least, most int
		switch n, _ := fmt.Sscanf(check, "%d..%d", &least, &most); {
		case n == 2:
			number["minimum"], number["maximum"] = least, most
		case check == "positive":
			number["minimum"] = 1
		case strings.HasPrefix(check, "not negative"):
			number["minimum"] = 0
		}
		return number
	default:
		return str
	}
}

func typed(text string, kind reflect.Kind) any {
	if number, err := strconv.Atoi(text); err == nil && kind == reflect.Int {
		return number
	}
	if kind == reflect.Bool {
		return text == "true"
	}
	return text
}
