{{/*
The rules of one of the Roles that controller-gen makes from controllers/rbac.go. files/role.yaml is
a copy of config/rbac/role.yaml, written by `make generate`. Called with (list $ NAME).
*/}}
{{- define "carillon.rules" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $rules := list -}}
{{- range splitList "\n---" (printf "\n%s" ($root.Files.Get "files/role.yaml")) -}}
{{- $role := fromYaml . -}}
{{- if and $role (eq $role.metadata.name $name) -}}
{{- $rules = $role.rules -}}
{{- end -}}
{{- end -}}
{{- if not $rules -}}
{{- fail (printf "files/role.yaml has no rules of %s: run `make generate`" $name) -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}
