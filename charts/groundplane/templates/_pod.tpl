{{/*
The pod of one service: (dict "root" $ "service" "ipam").

`all` and `ipam` keep state, `all` and `gateway` talk to Kubernetes, and those that call the cloud (`all`, `eip`, `bgp`,
`instances`) are given its secrets; ipam and the gateway call none. The Secret of an older controller tells the gateway, too, what to do.
*/}}
{{- define "groundplane.pod" -}}
{{- $root := .root }}
{{- $service := .service }}
{{- $values := $root.Values }}
{{- $own := index $values $service }}
{{- $state := has $service (list "all" "ipam") }}
{{- $kubernetes := has $service (list "all" "gateway") }}
{{- $remote := has $service (list "ipam" "eip" "bgp" "instances") }}
{{- $secrets := ternary $values.secretFiles list (has $service (list "all" "eip" "bgp" "instances")) }}
{{- $older := and (eq (include "groundplane.older" $root) "true") (has $service (list "all" "eip" "bgp" "instances" "gateway")) }}
{{- $legacy := and $older $values.cloudConfig.existingSecret }}
{{- $tls := eq (include "groundplane.tls" $root) "true" -}}
metadata:
  labels:
    {{- include "groundplane.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $service }}
    {{- with $own.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A changed configuration starts new pods.
    checksum/config: {{ include "groundplane.config" $root | sha256sum }}
    {{- if $values.telemetry.prometheusAnnotations }}
    prometheus.io/scrape: "true"
    prometheus.io/path: /metrics
    prometheus.io/port: {{ $values.ports.admin | quote }}
    {{- end }}
    {{- with $own.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $kubernetes | ternary $values.serviceAccount.name (include "groundplane.fullname" $root) }}
  automountServiceAccountToken: {{ $kubernetes }}
  enableServiceLinks: false
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if $values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  # groundplane is given 25 s to finish what it is doing.
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "groundplane.podSecurity" $root | nindent 4 }}
  containers:
    - name: {{ $service }}
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default $root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        - {{ $service }}
        - --config=/etc/groundplane/config/groundplane.yaml
      env:
        - name: GROUNDPLANE_LOG
          value: {{ $values.telemetry.log | quote }}
        - name: GROUNDPLANE_LOG_FORMAT
          value: {{ $values.telemetry.logFormat }}
        {{- with $values.telemetry.otlpEndpoint }}
        - name: GROUNDPLANE_OTLP_ENDPOINT
          value: {{ . | quote }}
        - name: GROUNDPLANE_TRACE_RATIO
          value: {{ $values.telemetry.traceRatio | quote }}
        {{- end }}
        - name: GROUNDPLANE_ADMIN_LISTEN
          value: "{{ $values.bindAddress }}:{{ $values.ports.admin }}"
        {{- include "groundplane.grpc" (dict "root" $root "service" $service "remote" $remote "tls" $tls) | nindent 8 }}
        {{- if $older }}
        {{- include "groundplane.olderEnv" $root | trim | nindent 8 }}
        {{- end }}
        {{- with $own.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: admin
          containerPort: {{ $values.ports.admin }}
        {{- if $remote }}
        - name: grpc
          containerPort: {{ $values.ports.grpc }}
        {{- end }}
      livenessProbe:
        httpGet: { path: /livez, port: admin }
        periodSeconds: 10
        timeoutSeconds: 2
      readinessProbe:
        httpGet: { path: /readyz, port: admin }
        periodSeconds: 5
        timeoutSeconds: 2
      {{- with $own.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "groundplane.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/groundplane/config
          readOnly: true
        - name: run
          mountPath: /run/groundplane
        {{- if $state }}
        - name: state
          mountPath: /var/lib/groundplane
        {{- end }}
        {{- if $tls }}
        - name: tls
          mountPath: /etc/groundplane/tls
          readOnly: true
        {{- end }}
        {{- range $secrets }}
        - name: secret-{{ .name }}
          mountPath: /etc/groundplane/secrets/{{ .name }}
          readOnly: true
        {{- end }}
        {{- if $legacy }}
        - name: cloud-config
          mountPath: /etc/cloud-sa
          readOnly: true
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "groundplane.fullname" $root }}
    # The socket that `groundplane ctl` asks.
    - name: run
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- if and $state $values.persistence.existingClaim }}
    - name: state
      persistentVolumeClaim:
        claimName: {{ $values.persistence.existingClaim }}
    {{- else if and $state (not $values.persistence.enabled) }}
    - name: state
      emptyDir: {}
    {{- end }}
    {{- if $tls }}
    - name: tls
      secret:
        secretName: {{ include "groundplane.tlsSecret" (list $root $service) }}
        defaultMode: 0440
    {{- end }}
    {{- range $secrets }}
    - name: secret-{{ .name }}
      secret:
        secretName: {{ .existingSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if $legacy }}
    - name: cloud-config
      secret:
        secretName: {{ $values.cloudConfig.existingSecret }}
        defaultMode: 0440
        items:
          - { key: cloud-sa.json, path: cloud-sa.json }
    {{- end }}
  {{- with $own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  tolerations:
    {{- include "groundplane.tolerations" $root | nindent 4 }}
{{- end }}

{{/* Nobody of ours needs to be root, or any capability. */}}
{{- define "groundplane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "groundplane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "groundplane.tolerations" -}}
# Nodes wait for us with this taint; where all of them do, we must run on one.
- { key: node.cloudprovider.kubernetes.io/uninitialized, operator: Exists, effect: NoSchedule }
- { key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule }
- { key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule }
{{- with .Values.tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The environment that says where one service listens and where it finds the others. */}}
{{- define "groundplane.grpc" -}}
{{- $values := .root.Values -}}
- name: GROUNDPLANE_LISTEN
  value: {{ ternary (printf "%s:%v" $values.bindAddress $values.ports.grpc) "unix:/run/groundplane/groundplane.sock" .remote | quote }}
{{- if not .remote }}
# Where `groundplane ctl` finds the gateway.
- name: GROUNDPLANE_GATEWAY
  value: unix:/run/groundplane/groundplane.sock
{{- end }}
{{- if and .tls .remote }}
- name: GROUNDPLANE_TLS_CERT
  value: /etc/groundplane/tls/tls.crt
- name: GROUNDPLANE_TLS_KEY
  value: /etc/groundplane/tls/tls.key
- name: GROUNDPLANE_TLS_CLIENT_CA
  value: /etc/groundplane/tls/ca.crt
- name: GROUNDPLANE_TRUST_DOMAIN
  value: {{ $values.tls.trustDomain | quote }}
{{- end }}
{{- if .tls }}
- name: GROUNDPLANE_CLIENT_CA
  value: /etc/groundplane/tls/ca.crt
- name: GROUNDPLANE_CLIENT_CERT
  value: /etc/groundplane/tls/tls.crt
- name: GROUNDPLANE_CLIENT_KEY
  value: /etc/groundplane/tls/tls.key
{{- else if .remote }}
# insecure=true was asked for.
- name: GROUNDPLANE_INSECURE
  value: "true"
{{- end }}
{{- $calls := dict "gateway" (list "ipam" "eip" "bgp" "instances") "eip" (list "ipam") }}
{{- range index $calls .service }}
- name: GROUNDPLANE_{{ upper . }}
  value: {{ include "groundplane.address" (list $.root .) | quote }}
{{- end }}
{{- end }}
