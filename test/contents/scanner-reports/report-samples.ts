// Small reports, written for these tests by the published schema of each form.

/** The JSON of grype. */
export const grype = {
  matches: [
    {
      vulnerability: { id: 'CVE-2026-0001', severity: 'Critical', fix: { versions: ['3.3.2-r0'], state: 'fixed' } },
      artifact: {
        name: 'openssl',
        version: '3.3.1-r0',
        type: 'apk',
        purl: 'pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64',
        locations: [{ path: '/lib/apk/db/installed', layerID: 'sha256:1' }],
      },
    },
    { vulnerability: { id: 'GHSA-aaaa-bbbb-cccc', severity: 'Negligible', fix: { versions: [], state: 'unknown' } }, artifact: { name: 'left', version: '1' } },
    { vulnerability: { severity: 'High' }, artifact: { name: 'nameless' } },
  ],
  ignoredMatches: [{ vulnerability: { id: 'CVE-2026-9999', severity: 'High' }, artifact: { name: 'openssl' } }],
  source: { type: 'image', target: {} },
  descriptor: { name: 'grype', version: '0.93.0', timestamp: '2026-11-01T10:00:00Z' },
}

/** The JSON of Trivy. */
export const trivy = {
  SchemaVersion: 2,
  CreatedAt: '2026-11-02T10:00:00.5Z',
  ArtifactName: 'registry.example/app:1',
  Trivy: { Version: '0.66.0' },
  Results: [
    {
      Target: 'registry.example/app:1 (alpine 3.20.1)',
      Class: 'os-pkgs',
      Type: 'alpine',
      Vulnerabilities: [
        {
          VulnerabilityID: 'CVE-2026-0002',
          PkgName: 'musl',
          PkgIdentifier: { PURL: 'pkg:apk/alpine/musl@1.2.5-r0?arch=x86_64' },
          InstalledVersion: '1.2.5-r0',
          FixedVersion: '1.2.5-r1',
          Severity: 'HIGH',
        },
      ],
    },
    {
      Target: 'app/package-lock.json',
      Class: 'lang-pkgs',
      Type: 'npm',
      Vulnerabilities: [{ VulnerabilityID: 'CVE-2026-0003', PkgName: 'left-pad', InstalledVersion: '1.0.0', Severity: 'UNKNOWN' }],
    },
    { Target: 'Dockerfile', Class: 'config' },
  ],
}

/** SARIF as Trivy and grype write it, and a result that is suppressed. */
export const sarif = {
  version: '2.1.0',
  $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
  runs: [
    {
      tool: {
        driver: {
          name: 'Trivy',
          version: '0.66.0',
          rules: [
            { id: 'CVE-2026-0004', properties: { 'security-severity': '9.8' } },
            { id: 'CVE-2026-0005-zlib', properties: { 'security-severity': '5.5', purls: ['pkg:deb/debian/zlib1g@1.3'] } },
            { id: 'style', defaultConfiguration: { level: 'note' } },
          ],
        },
      },
      invocations: [{ executionSuccessful: true, endTimeUtc: '2026-11-03T10:00:00Z' }],
      results: [
        {
          ruleId: 'CVE-2026-0004',
          ruleIndex: 0,
          level: 'error',
          message: { text: 'Package: busybox\nInstalled Version: 1.36\nVulnerability CVE-2026-0004\nSeverity: CRITICAL\nFixed Version: 1.37\nLink: [x](y)' },
          locations: [{ physicalLocation: { artifactLocation: { uri: 'lib/apk/db/installed' } } }],
        },
        { ruleId: 'CVE-2026-0005-zlib', message: { text: 'a vulnerability in zlib1g' } },
        { rule: { index: 2 }, message: { text: 'a note' } },
        { ruleId: 'CVE-2026-0006', message: { text: 'hidden' }, suppressions: [{ kind: 'external' }] },
        { ruleId: 'CVE-2026-0007', kind: 'pass', message: { text: 'fine' } },
      ],
    },
  ],
}

/** A report of a scanner for Harbor. */
export const harbor = {
  generated_at: '2026-11-04T10:00:00Z',
  artifact: { repository: 'app', digest: 'sha256:0' },
  scanner: { name: 'Clair', vendor: 'Quay', version: '4.8' },
  severity: 'High',
  vulnerabilities: [{ id: 'CVE-2026-0008', package: 'bash', version: '5.1', fix_version: '5.2', severity: 'High', links: ['https://example.com'] }],
}

const metadata = { scanStartedOn: '2026-11-05T09:59:00Z', scanFinishedOn: '2026-11-05T10:00:00Z' }

/** The vulnerability predicate of in-toto, version 0.1. */
export const vulns = {
  scanner: {
    uri: 'pkg:github/aquasecurity/trivy@0.66.0',
    version: '0.66.0',
    db: { lastUpdate: '2026-11-05T00:00:00Z' },
    result: [
      {
        id: 'CVE-2026-0009',
        severity: [
          { method: 'cvss_score', score: '5.2' },
          { method: 'nvd', score: 'high' },
        ],
      },
      { vulnerability: { id: 'CVE-2026-0010', severity: [{ method: 'cvss_score', score: '9.1' }] } },
    ],
  },
  metadata,
}

/** The vulnerability predicate of cosign, with the JSON of grype in it. */
export const cosignVuln = { invocation: { uri: 'https://ci.example/1' }, scanner: { uri: '', result: grype }, metadata }
