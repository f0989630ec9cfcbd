{{/* Annotations of what is there only while the chart is installed or upgraded: (list $isHook $weight). */}}
{{- define "groundplane.hook" -}}
{{- if index . 0 -}}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
{{- end }}

{{/* The pod that makes and renews certificates: (list $ "account"). */}}
{{- define "groundplane.certsPod" -}}
{{- $root := index . 0 }}
{{- $values := $root.Values -}}
metadata:
  labels:
    {{- include "groundplane.labels" $root | nindent 4 }}
    app.kubernetes.io/component: certs
spec:
  restartPolicy: Never
  serviceAccountName: {{ index . 1 }}
  automountServiceAccountToken: true
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
  securityContext:
    {{- include "groundplane.podSecurity" $root | nindent 4 }}
  containers:
    - name: certs
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default $root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [certs]
      env:
        - name: GROUNDPLANE_CERTS_PREFIX
          value: {{ include "groundplane.fullname" $root }}
        - name: GROUNDPLANE_CERTS_NAMESPACE
          value: {{ $root.Release.Namespace }}
        - name: GROUNDPLANE_CERTS_SERVICES
          value: {{ include "groundplane.certified" $root }}
        - name: GROUNDPLANE_CERTS_HOSTS
          value: {{ include "groundplane.host" (list $root "{service}") | quote }}
        - name: GROUNDPLANE_TRUST_DOMAIN
          value: {{ $values.tls.trustDomain | quote }}
        - name: GROUNDPLANE_CERTS_VALIDITY
          value: {{ $values.tls.validity | quote }}
        - name: GROUNDPLANE_CERTS_RENEW_BEFORE
          value: {{ $values.tls.renewBefore | quote }}
      resources:
        requests: { cpu: 10m, memory: 32Mi }
        limits: { memory: 64Mi }
      securityContext:
        {{- include "groundplane.containerSecurity" $root | nindent 8 }}
  tolerations:
    {{- include "groundplane.tolerations" $root | nindent 4 }}
{{- end }}
