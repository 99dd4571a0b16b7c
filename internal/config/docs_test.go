package config_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/yamlfile"
)

// reference is the page whose tables are made of the structs, their tags and comments.
const (
	reference = "../../docs/configuration.md"
	generated = "\n## All keys\n"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md anew")

func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	page := string(pgtest.Must(os.ReadFile(reference))(t))
	head, _, found := strings.Cut(page, generated)
	require.True(t, found, "docs/configuration.md has a section for the tables")
	want := head + generated + keyTables(t)
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, page, "docs/configuration.md differs from the structs: go test ./internal/config -run TestConfigurationIsDocumented -update")
}

// keyTables has one table for each part of the configuration, and a row for each key.
func keyTables(t *testing.T) string {
	t.Helper()
	d := documenter{test: t, comments: yamlfile.Comments(sources(t))}
	c := pgtest.Must(config.Load(config.Options{DatabaseURL: "postgres://localhost/app"}))(t)
	require.NoError(t, yaml.Unmarshal(c.Show().YAML(), &d.defaults))
	for part := range reflect.TypeFor[config.Config]().Fields() {
		key, _, _ := strings.Cut(part.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		fmt.Fprintf(&d.out, "\n### %s\n\n| key | values | default | meaning |\n| --- | --- | --- | --- |\n", key)
		if part.Type.Kind() == reflect.Slice {
			d.rows(part.Type.Elem(), key+".<name>", d.defaults[key].(map[string]any)["main"])
			continue
		}
		d.rows(part.Type, key, d.defaults[key])
	}
	return d.out.String()
}

// sources are the package's files.
func sources(t *testing.T) (text string) {
	t.Helper()
	for _, file := range []string{"config.go", "components.go"} {
		text += string(pgtest.Must(os.ReadFile(file))(t))
	}
	return text
}

type documenter struct {
	test     *testing.T
	comments map[string]string
	defaults map[string]any
	out      strings.Builder
}

func (d *documenter) rows(of reflect.Type, path string, values any) {
	for field := range of.Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "-" {
			continue
		}
		value := values.(map[string]any)[key]
		if field.Type.Kind() == reflect.Struct {
			d.rows(field.Type, yamlfile.Join(path, key), value)
			continue
		}
		comment := d.comments[of.Name()+"."+field.Name]
		require.NotEmpty(d.test, comment, "%s.%s needs a comment, which docs/configuration.md shows", of.Name(), field.Name)
		for other := range of.Fields() {
			name, _, _ := strings.Cut(other.Tag.Get("yaml"), ",")
			comment = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(comment, "`"+name+"`")
		}
		comment = regexp.MustCompile("^`"+key+"` (?:is|are) ").ReplaceAllString(strings.TrimSuffix(comment, "."), "")
		standard := ""
		switch {
		case option == "required":
			standard = "required"
		case field.Type.Kind() != reflect.Slice && value != "":
			standard = fmt.Sprintf("`%v`", value)
		}
		fmt.Fprintf(&d.out, "| `%s` | %s | %s | %s |\n", yamlfile.Join(path, key), allowed(field), standard, comment)
	}
}

// allowed says what a key may be set to.
func allowed(field reflect.StructField) string {
	zero := reflect.Zero(field.Type).Interface()
	if choice, ok := zero.(interface{ Choices() []string }); ok {
		return "`" + strings.Join(choice.Choices(), "`, `") + "`"
	}
	kinds := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Slice: "list", reflect.Int: "number", reflect.String: "text"}
	kind, check := kinds[field.Type.Kind()], field.Tag.Get("check")
	switch zero.(type) {
	case time.Duration:
		kind = "duration"
	case config.Schedule:
		kind = "cron expression"
	case encoding.TextMarshaler:
		kind = "`auto`, or 1 to 100"
	}
	bounds, _, _ := strings.Cut(check, ";")
	switch {
	case strings.Contains(check, ".."):
		return strings.ReplaceAll(bounds, "..", " to ")
	case check == "positive":
		return kind + " above 0"
	case check != "":
		return kind + ", " + bounds
	}
	return kind
}

// What editors say about the examples is what the program says. The defaults, of which every key is shown, fit as well.
func TestExamplesFitTheSchema(t *testing.T) {
	t.Parallel()
	written := pgtest.Must(json.Marshal(config.Schema()))(t)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("sexton.yaml", pgtest.Must(jsonschema.UnmarshalJSON(bytes.NewReader(written)))(t)))
	schema := pgtest.Must(compiler.Compile("sexton.yaml"))(t)
	fits := func(text string) error {
		var document any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		return schema.Validate(document)
	}
	texts := []string{string(pgtest.Must(os.ReadFile("../../deploy/example/sexton.yaml"))(t))}
	for _, page := range pgtest.Must(filepath.Glob("../../docs/*.md"))(t) {
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(pgtest.Must(os.ReadFile(page))(t)), -1) {
			if filepath.Base(page) == "definitions.md" { // It shows what is wrong, too.
				continue
			}
			if strings.Contains(block[1], "\ndatabases:") || strings.HasPrefix(block[1], "databases:") {
				texts = append(texts, block[1])
			}
		}
	}
	require.GreaterOrEqual(t, len(texts), 3)
	for _, text := range append(texts, "jobs: {max_workers: \"${WORKERS}\"}") {
		require.NoError(t, fits(text), text)
	}
	c := pgtest.Must(config.Load(config.Options{DatabaseURL: "postgres://localhost/app"}))(t)
	require.NoError(t, fits(string(c.Show().YAML())))
	for _, wrong := range []string{"databses: {}", "jobs: {max_workers: 0}", "jobs: {max_workers: many}", "databases: {main: {pace: fast}}", "ghost_users: {move: [{columns: [a]}]}"} {
		require.Error(t, fits(wrong), wrong)
	}
	require.Contains(t, string(written), `"default":10,"description":"max_workers is how many jobs of one kind`)
}
