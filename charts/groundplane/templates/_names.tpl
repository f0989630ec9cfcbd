{{/* The names that templates share. */}}

{{- define "groundplane.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "groundplane.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "groundplane.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "groundplane.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "groundplane.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "groundplane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Which pods are those of one service: (list $ "ipam"). These can never change. */}}
{{- define "groundplane.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "groundplane.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Services that have a certificate each. */}}
{{- define "groundplane.certified" -}}
ipam,eip,bgp,instances,gateway
{{- end }}

{{/* "true" where gRPC between pods is mutual TLS. */}}
{{- define "groundplane.tls" -}}
{{- and (eq .Values.mode "services") (ne .Values.tls.mode "off") -}}
{{- end }}

{{/* The Secret with the certificate of a service: (list $ "ipam"). */}}
{{- define "groundplane.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- if eq $root.Values.tls.mode "secrets" -}}
{{- index $root.Values.tls.secrets (index . 1) -}}
{{- else -}}
{{- include "groundplane.fullname" $root }}-{{ index . 1 }}-tls
{{- end -}}
{{- end }}

{{/* The name that a service is called by, which its certificate must carry: (list $ "ipam"). */}}
{{- define "groundplane.host" -}}
{{- $root := index . 0 -}}
{{ include "groundplane.fullname" $root }}-{{ index . 1 }}.{{ $root.Release.Namespace }}.svc
{{- end }}

{{/* Where a service is: (list $ "ipam"). */}}
{{- define "groundplane.address" -}}
{{- $root := index . 0 -}}
{{ ternary "https" "http" (eq (include "groundplane.tls" $root) "true") }}://{{ include "groundplane.host" . }}:{{ $root.Values.ports.grpc }}
{{- end }}

{{/* "true" where inputs of an older controller tell what the configuration leaves open. */}}
{{- define "groundplane.older" -}}
{{- if or .Values.cloudConfig.existingSecret .Values.cloudConfig.extraEnv -}}true{{- end -}}
{{- end }}

{{/* Whose inputs they are: as the values say, else as the Secret is called; empty: they tell themselves. */}}
{{- define "groundplane.olderOf" -}}
{{- $called := dict
  "packet-cloud-config" "packet-ccm"
  "metal-cloud-config" "cloud-provider-equinix-metal"
  "cherry-cloud-config" "cloud-provider-cherry" -}}
{{- .Values.cloudConfig.of | default (get $called (.Values.cloudConfig.existingSecret | default "none")) -}}
{{- end }}

{{/* The environment that carries them. */}}
{{- define "groundplane.olderEnv" -}}
{{- with include "groundplane.olderOf" . }}
- name: GROUNDPLANE_CLOUD_CONFIG_OF
  value: {{ . }}
{{- end }}
{{- with .Values.cloudConfig.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
What of MetalLB's the gateway may write, as JSON: `forms`, each an announcer, in `namespace`, and `configMap` there. As the configuration
says; where it does not, older inputs may say any of the forms that their controller had. A Role cannot be where there is no such
namespace: it is looked for wherever a cluster can be asked.
*/}}
{{- define "groundplane.metallb" -}}
{{- $told := dig "gateway" "announcer" "" .Values.config }}
{{- $older := ternary .Values.cloudConfig.metallb dict (and (not $told) (eq (include "groundplane.older" .) "true")) }}
{{- $metallb := dig "gateway" "metallb" dict .Values.config }}
{{- $namespace := $metallb.namespace | default $older.namespace | default "metallb-system" }}
{{- $forms := list }}
{{- if has $told (list "metallb" "metallb-configmap") }}
{{- $forms = list $told }}
{{- end }}
{{- $never := get (dict "packet-ccm" "metallb" "cloud-provider-cherry" "metallb-configmap") (include "groundplane.olderOf" . | default "none") }}
{{- range $older.forms }}
{{- if ne . $never }}
{{- $forms = append $forms . }}
{{- end }}
{{- end }}
{{- $missing := and $older.forms (lookup "v1" "Namespace" "" "kube-system") (not (lookup "v1" "Namespace" "" $namespace)) }}
{{- if $missing }}
{{- $forms = list }}
{{- end }}
{{- toJson (dict "forms" $forms "namespace" $namespace "configMap" ($metallb.configMap | default $older.configMap | default "config") "missing" (not (not $missing))) }}
{{- end }}

{{/* Refuses values that would not work, with the way out. */}}
{{- define "groundplane.check" -}}
{{- if and (eq .Values.mode "services") (eq .Values.tls.mode "off") (not .Values.insecure) }}
{{- fail "mode `services` sends gRPC between pods: choose another tls.mode than off, or accept plaintext with insecure=true" }}
{{- end }}
{{- if and (eq .Values.mode "services") (eq .Values.tls.mode "secrets") }}
{{- range splitList "," (include "groundplane.certified" .) }}
{{- if not (index $.Values.tls.secrets .) }}
{{- fail (printf "tls.mode=secrets needs tls.secrets.%s: the name of a Secret with tls.crt, tls.key and ca.crt" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $driver := .Values.config.driver }}
{{- if and (has $driver (list "equinix" "cherry")) (ne (include "groundplane.older" .) "true") (not (dig $driver "apiTokenFile" "" .Values.config)) }}
{{- fail (printf "driver `%s` needs config.%s.apiTokenFile: mount the token with secretFiles and name its file, /etc/groundplane/secrets/<name>/<key>" $driver $driver) }}
{{- end }}
{{- end }}

{{/* The configuration file: the values' `config`, with what the chart knows filled in where it is absent. */}}
{{- define "groundplane.config" -}}
{{- $own := dict
  "gateway" (dict "namespace" .Release.Namespace)
  "ipam" (dict "store" (dict "path" "/var/lib/groundplane/ipam.redb")) -}}
{{- if .Values.agent.enabled }}
{{- /* The name that every API server's certificate carries, whatever address it is asked at. */}}
{{- $_ := set $own "health" (dict "probe" (dict "serverName" "kubernetes.default.svc")) }}
{{- $_ := set $own "endpoint" (dict "candidatesFile" "/var/lib/groundplane/candidates.json") }}
{{- end }}
{{- if eq (dig "ipam" "store" "kind" "redb" .Values.config) "memory" }}
{{- $_ := unset $own "ipam" }}
{{- end }}
{{- $config := mergeOverwrite $own (deepCopy .Values.config) }}
{{- if and (eq (include "groundplane.older" .) "true") (eq (get $config "driver") "static") }}
{{- /* The chart's default. Older inputs tell another. */}}
{{- $_ := unset $config "driver" }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Names that the external Service may have, as JSON: inputs of an older controller have its own kept. */}}
{{- define "groundplane.external" -}}
{{- $service := dig "endpoint" "service" "" .Values.config }}
{{- $names := list (last (splitList "/" ($service | default "kube-system/groundplane-kubernetes-external"))) }}
{{- if and (eq (include "groundplane.older" .) "true") (not $service) }}
{{- $names = concat $names (list "cloud-provider-equinix-metal-kubernetes-external" "metal-ccm-kubernetes-external" "packet-ccm-kubernetes-external" "cloud-provider-cherry-kubernetes-external") }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* Rules by which older controllers are looked for: their lease, and their pods. */}}
{{- define "groundplane.rivals" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [cloud-controller-manager]
  verbs: [get]
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [cloud-provider-equinix-metal]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments]
  resourceNames: [cloud-provider-equinix-metal, packet-cloud-controller-manager, cloud-provider-cherry]
  verbs: [get]
{{- end }}
