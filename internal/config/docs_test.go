package config_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/yamlfile"
)

// reference is the page whose key blocks are generated from the structs of the
// configuration, after the heading generated.
const (
	reference = "../../docs/configuration.md"
	generated = "\n## All keys\n"
)

var update = flag.Bool("update", false, "write the blocks of docs/configuration.md")

func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	page := string(pgtest.Must(os.ReadFile(reference))(t))
	head, _, found := strings.Cut(page, generated)
	require.True(t, found, "docs/configuration.md has a section for the blocks")
	want := head + generated + keyBlocks(t)
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, page,
		"docs/configuration.md differs from the structs: go test ./internal/config -run TestConfigurationIsDocumented -update")
}

// keyBlocks returns one YAML block for each section of the configuration. A block has
// each key with its default and its comment.
func keyBlocks(t *testing.T) string {
	d := documenter{test: t, comments: comments(t, "config.go", "components.go"), written: map[string]bool{}}
	c := pgtest.Must(config.Load(config.Options{DatabaseURL: "postgres://localhost/app"}))(t)
	require.NoError(t, yaml.Unmarshal(c.Show().YAML(), &d.defaults))
	for part := range reflect.TypeFor[config.Config]().Fields() {
		key, _, _ := strings.Cut(part.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		fmt.Fprintf(&d.out, "\n### %s\n\n```yaml\n%s:\n", key, key)
		if part.Type.Kind() == reflect.Slice {
			d.out.WriteString("  main:\n")
			d.rows(part.Type.Elem(), "    ", d.defaults[key].(map[string]any)["main"])
		} else {
			d.rows(part.Type, "  ", d.defaults[key])
		}
		d.out.WriteString("```\n")
	}
	return d.out.String()
}

type documenter struct {
	test     *testing.T
	comments map[string]string
	defaults map[string]any
	// written holds the comments that are in the page already. A key that appears again
	// with the same comment is written without the comment.
	written map[string]bool
	out     strings.Builder
}

func (d *documenter) rows(of reflect.Type, indent string, values any) {
	for field := range of.Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "-" || !field.IsExported() {
			continue
		}
		value := values.(map[string]any)[key]
		if field.Type.Kind() == reflect.Struct {
			fmt.Fprintf(&d.out, "%s%s:\n", indent, key)
			d.rows(field.Type, indent+"  ", value)
			continue
		}
		comment := d.comments[of.Name()+"."+field.Name]
		require.NotEmpty(d.test, comment, "%s.%s needs a comment, which docs/configuration.md shows", of.Name(),
			field.Name)
		comment = withKeys(comment, of)
		comment = regexp.MustCompile("^"+key+" (?:(?:is|are) )?").ReplaceAllString(strings.TrimSuffix(comment, "."), "")
		if limits := allowedValues(field); limits != "" {
			comment += " (" + limits + ")"
		}
		if !d.written[key+comment] {
			d.comment(indent, comment)
			d.written[key+comment] = true
		}
		d.out.WriteString(indent + keyLine(key, option, value) + "\n")
	}
}

// comment writes a YAML comment that wraps at 120 characters.
func (d *documenter) comment(indent, text string) {
	const width = 120
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			d.out.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	d.out.WriteString(line + "\n")
}

// keyLine returns the line of a key with its default. It leaves out defaults that depend
// on the application.
func keyLine(key, option string, value any) string {
	switch list, isList := value.([]any); {
	case option == "required":
		return key + `: "${DATABASE_URL}"`
	case isList && len(list) > 0:
		return "# " + key + ":"
	case isList:
		return key + ": []"
	}
	if text, isText := value.(string); isText && (text == "" || strings.Contains(text, "*")) {
		return fmt.Sprintf("%s: %q", key, text)
	}
	if _, isMap := value.(map[string]any); isMap {
		return key + ": {}"
	}
	return fmt.Sprintf("%s: %v", key, value)
}

// allowedValues returns the accepted values of a key, if the default does not show them.
func allowedValues(field reflect.StructField) string {
	zero := reflect.Zero(field.Type).Interface()
	if choice, ok := zero.(interface{ Choices() []string }); ok {
		return strings.Join(choice.Choices(), ", ")
	}
	switch zero.(type) {
	case time.Duration, config.Schedule:
	case config.Days:
		return "1d to 3650d"
	case encoding.TextMarshaler:
		return "auto, or 1 to 100"
	}
	bounds, _, _ := strings.Cut(field.Tag.Get("check"), ";")
	if strings.Contains(bounds, "..") {
		return strings.ReplaceAll(bounds, "..", " to ")
	}
	return ""
}

// The schema accepts the examples of the documents, the configuration with all defaults,
// and variables. It rejects configurations that Load rejects.
func TestExamplesFitTheSchema(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("sexton.yaml",
		pgtest.Must(jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema)))(t)))
	schema := pgtest.Must(compiler.Compile("sexton.yaml"))(t)
	fits := func(text string) error {
		var document any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		return schema.Validate(document)
	}
	texts := []string{string(pgtest.Must(os.ReadFile("../../deploy/example/sexton.yaml"))(t))}
	for _, page := range pgtest.Must(filepath.Glob("../../docs/*.md"))(t) {
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(pgtest.Must(os.ReadFile(page))(t)), -1) {
			// The examples in definitions.md are skipped: some show invalid definitions.
			if filepath.Base(page) == "definitions.md" {
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
	for _, wrong := range []string{
		"databses: {}", "jobs: {max_workers: 0}", "jobs: {max_workers: many}",
		"databases: {main: {pace: fast}}", "ghost_users: {move: [{columns: [a]}]}",
	} {
		require.Error(t, fits(wrong), wrong)
	}
	require.Contains(t, string(config.Schema), `"description": "max_workers is the number of jobs of one kind`)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// document returns a YAML file in flow style that sets the dotted keys. Numbers and
// booleans are not quoted.
func document(values map[string]string) string {
	tree := map[string]any{"databases": map[string]any{"main": map[string]any{"url": url}}}
	for key, value := range values {
		parts := strings.Split(key, ".")
		node := tree
		for _, part := range parts[:len(parts)-1] {
			if node[part] == nil {
				node[part] = map[string]any{}
			}
			node = node[part].(map[string]any)
		}
		node[parts[len(parts)-1]] = value
		if raw := json.RawMessage(value); json.Valid(raw) && parts[len(parts)-1] != "token" {
			node[parts[len(parts)-1]] = raw
		}
	}
	// json.Marshal cannot fail for strings and valid raw messages.
	text, _ := json.Marshal(tree)
	return string(text)
}

func write(t require.TestingT, dir, name, text string) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// reveal returns the YAML of Show with the secrets instead of ***.
func reveal(c *config.Config) string {
	text := string(c.Show().YAML())
	for _, d := range c.Databases {
		for _, u := range []config.URL{d.URL, d.ListenURL} {
			text = strings.Replace(text, quoted(u.String()), quoted(string(u)), 1)
		}
	}
	for key, secret := range map[string]config.Secret{"password": c.HTTP.Password, "token": c.HTTP.Token} {
		text = strings.Replace(text, "  "+key+": "+quoted("***"), "  "+key+": "+quoted(string(secret)), 1)
	}
	return text
}

func quoted(s string) string {
	text, _ := json.Marshal(strings.ReplaceAll(s, "${", "$${"))
	return string(text)
}

func TestShowRoundTrip(t *testing.T) {
	t.Parallel()

	dir := folder(t, `
databases:
  z:
    url: "postgres://app:geheim@localhost/app?sslpassword=geheim&application_name=x"
    listen_url: "host=localhost password = 'ge heim' dbname=app"
    schema: "null"
    tables: [ci_*, "$${X}"]
    limits: {runtime: 7s}
  a: {url: "`+url+`", pace: turbo}
jobs: {database: a, lock_timeout: 250ms}
loose_foreign_keys: {definitions: [b.yml, a.yml]}
ghost_users: {nullify: []}
http: {listen: ":1", user: "on", password: geheim, token: "geheim"}
`)
	first := pgtest.Must(config.Load(config.Options{Dir: dir}))(t)
	shown := string(first.Show().YAML())
	require.NotContains(t, shown, "heim")
	require.Contains(t, shown, `url: "postgres://app:***@localhost/app?sslpassword=***&application_name=x"`)
	require.Contains(t, shown, `listen_url: "host=localhost password = *** dbname=app"`)

	second := pgtest.Must(config.Load(config.Options{Path: write(t, t.TempDir(), "shown.yaml", reveal(first))}))(t)
	require.Equal(t, shown, string(second.Show().YAML()))
	require.Equal(t, reveal(first), reveal(second))
	require.Equal(t, first.HTTP, second.HTTP)
	require.Equal(t, []string{"z", "a"}, names(second))

	asJSON := pgtest.Must(json.Marshal(first.Show()))(t)
	require.NotContains(t, string(asJSON), "heim")
	var document struct {
		Databases json.RawMessage
		HTTP      struct{ Password string }
	}
	require.NoError(t, json.Unmarshal(asJSON, &document))
	require.True(t, strings.HasPrefix(string(document.Databases), `{"z":`), "databases keep their order")
	require.Equal(t, "***", document.HTTP.Password)
}

func TestShownTextsAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.OneOf(rapid.StringMatching(`[ -~é-ÿ]{0,12}`), rapid.SampledFrom([]string{
			"", "true", "Null", "~", "yes", "1e3", "0x1f", "- a", "a: b", "#", "${X}", "$${X}", "$$${", "***", " a ",
			"\"", "\\", "%", "@", "<<",
		}))).Draw(t, "texts")
		quotedTexts := ""
		for _, text := range texts {
			quotedTexts += quoted(text) + ", "
		}
		first := pgtest.Must(config.Load(config.Options{
			DatabaseURL: url, Path: write(t, dir, "first.yaml", "loose_foreign_keys: {undo: {tables: ["+quotedTexts+"]}}\n"),
		}))(t)
		shown := first.Show().YAML()
		second := pgtest.Must(config.Load(config.Options{Path: write(t, dir, "second.yaml", string(shown))}))(t)
		require.Equal(t, texts, second.LooseForeignKeys.Undo.Tables, string(shown))
		var document struct {
			Loose struct{ Undo struct{ Tables []string } } `json:"loose_foreign_keys"`
		}
		require.NoError(t, json.Unmarshal(pgtest.Must(json.Marshal(first.Show()))(t), &document))
		require.Equal(t, texts, document.Loose.Undo.Tables)
	})
}

func TestShowHasEveryKeyWithItsDefault(t *testing.T) {
	t.Parallel()

	c := pgtest.Must(config.Load(config.Options{DatabaseURL: url, Dir: "/app"}))(t)
	require.Equal(t, string(pgtest.Must(os.ReadFile("testdata/defaults.yaml"))(t)), string(c.Show().YAML()))
}

func TestSecretsAreHiddenEverywhere(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"postgres://u:geheim@h:5432/d":                    "postgres://u:***@h:5432/d",
		"postgres://u:gehei@m@h/d":                        "postgres://u:***@h/d",
		"postgres://u:1#geheim@h/d":                       "postgres://u:***@h/d",
		"postgres://u:1/geheim@h/d":                       "postgres://u:***@h/d",
		"postgres://u@h,h2:1/d?password=geheim":           "postgres://u@h,h2:1/d?password=***",
		"postgres:///d?host=/tmp&%70assword=geheim&x=%zz": "postgres:///d?host=/tmp&%70assword=***&x=%zz",
		"postgres://u@h/d":                                "postgres://u@h/d",
		"s3://key:geheim@bucket?aws_secret=geheim":        "s3://key:***@bucket?aws_secret=***",
		`user=u password=geh\ eim host=h`:                 `user=u password=*** host=h`,
		`password='geh\'eim' host = h`:                    `password=*** host = h`,
		`host=h password = geheim`:                        `host=h password = ***`,
		`host=h password='geheim`:                         `host=h password=***`,
		`host=h password=`:                                `host=h password=`,
		"":                                                "",
	} {
		u := config.URL(text)
		require.Equal(t, want, u.String())
		require.Equal(t, want+want+want, fmt.Sprintf("%v%s%#v", u, u, u))
		var logged strings.Builder
		slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "url", u)
		require.NotContains(t, logged.String(), "geh", text)
	}
	require.Equal(t, "{      false false}", fmt.Sprint(config.HTTP{}))
	require.Equal(t, "{ u *** ***   false false}", fmt.Sprint(config.HTTP{
		User: "u", Password: "geheim",
		Token: "geheim",
	}))
}

// No error message contains the value of a key, whether the value is set in the file, by
// ${VARIABLE}, or by a SEXTON_ variable.
func TestErrorsNeverRepeatValues(t *testing.T) {
	t.Parallel()

	const password = "geheim-4711"
	base := `databases: {main: {url: "` + url + `"}}` + "\n"
	refused := 0
	for _, path := range leaves(reflect.TypeFor[config.Config](), "") {
		variable := "SEXTON_" + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
		for _, text := range []string{password, "postgres://u:" + password + "@h:p/d", "[" + password + "]"} {
			for _, attempt := range []struct{ file, variable string }{
				{document(map[string]string{path: text}), "UNUSED"},
				{document(map[string]string{path: "${PASSWORD}"}), "PASSWORD"},
				{base, variable},
			} {
				if _, err := load(t, attempt.file, attempt.variable+"="+text); err != nil {
					require.NotContains(t, err.Error(), password, path)
					refused++
				}
			}
		}
	}
	require.Greater(t, refused, 100)
}

// leaves returns the paths of all keys that have a value. The name of the database is
// main.
func leaves(of reflect.Type, path string) (paths []string) {
	for field := range of.Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch fieldPath := yamlfile.Join(path, key); {
		case key == "" || key == "-":
		case option == "keyed":
			paths = append(paths, leaves(field.Type.Elem(), fieldPath+".main")...)
		case field.Type.Kind() == reflect.Struct:
			paths = append(paths, leaves(field.Type, fieldPath)...)
		case field.Type.Kind() != reflect.Map:
			paths = append(paths, fieldPath)
		}
	}
	return paths
}

func TestAbsoluteBucket(t *testing.T) {
	t.Parallel()
	for bucket, want := range map[config.URL]config.URL{
		"file://diffs": "file:///srv/diffs", "file:///diffs": "file:///diffs", "file://": "file://",
		"s3://diffs": "s3://diffs", "": "",
	} {
		require.Equal(t, want, config.AbsoluteBucket(bucket, "/srv"))
	}
}
