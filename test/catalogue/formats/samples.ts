/** A small realistic document of each form that makes advisories. */
export const samples = {
  osv: {
    id: 'PYSEC-2026-1',
    modified: '2026-01-02T00:00:00Z',
    aliases: ['CVE-2026-1001'],
    summary: 'Example decodes too much.',
    references: [{ type: 'ADVISORY', url: 'https://example.com/1' }],
    severity: [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
    affected: [{ package: { ecosystem: 'PyPI', name: 'example' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.1' }] }] }],
  },
  openvex: {
    '@context': 'https://openvex.dev/ns/v0.2.0',
    '@id': 'https://vex.example.com/2026-1',
    author: 'Example Security <security@example.com>',
    timestamp: '2026-01-02T10:00:00Z',
    version: 3,
    statements: [
      {
        vulnerability: { name: 'CVE-2026-1001', aliases: ['GHSA-aaaa-bbbb-cccc'] },
        products: [
          {
            '@id': 'pkg:oci/shop@sha256%3Aabc?arch=amd64',
            subcomponents: [{ '@id': 'pkg:apk/example/libpng@1.6.40-r0?arch=x86_64' }, { '@id': 'pkg:golang/example.com/net/http2@v1.2.3' }],
          },
        ],
        status: 'under_investigation',
      },
      {
        vulnerability: { name: 'CVE-2026-1001' },
        timestamp: '2026-01-03T12:00:00+02:00',
        products: [{ '@id': 'pkg:oci/shop@sha256%3Aabc?arch=amd64', subcomponents: [{ '@id': 'pkg:apk/example/libpng@1.6.40-r0?arch=x86_64' }] }],
        status: 'not_affected',
        justification: 'vulnerable_code_not_in_execute_path',
        impact_statement: 'The shop never decodes PNG.',
        status_notes: 'Checked by hand.',
      },
      {
        vulnerability: { name: 'CVE-2026-1002' },
        products: [{ '@id': 'https://example.com/shop' }],
        status: 'affected',
        action_statement: 'Turn off uploads.',
      },
      { vulnerability: { name: 'CVE-2026-1003' }, products: [{ identifiers: { purl: 'pkg:npm/%40example/cart@2.1.0' } }], status: 'fixed' },
    ],
  },
  packageAdvisories: {
    'schema-version': '2.0.2',
    package: { name: 'nginx' },
    advisories: [
      {
        id: 'EXA-2345-6789-cfgh',
        aliases: ['CVE-2026-1001', 'GHSA-aaaa-bbbb-cccc'],
        events: [
          {
            timestamp: '2026-01-01T08:00:00Z',
            type: 'detection',
            data: {
              type: 'scan/v1',
              data: {
                subpackageName: 'nginx-mod',
                componentID: '0123',
                componentName: 'zlib',
                componentVersion: '1.3',
                componentType: 'apk',
                componentLocation: '/lib/apk/db/installed',
                scanner: 'grype',
              },
            },
          },
          { timestamp: '2026-01-02T08:00:00Z', type: 'true-positive-determination', data: { note: 'The module decompresses requests.' } },
          { timestamp: '2026-01-03T08:00:00Z', type: 'pending-upstream-fix', data: { note: 'Upstream reviews a fix.' } },
          { timestamp: '2026-01-04T08:00:00Z', type: 'fixed', data: { 'fixed-version': '1.27.1-r0' } },
        ],
      },
      {
        id: 'CVE-2026-1004',
        events: [
          {
            timestamp: '2026-01-01T08:00:00Z',
            type: 'detection',
            data: { type: 'nvdapi', data: { cpeSearched: 'cpe:2.3:a:*:nginx', cpeFound: 'cpe:2.3:a:f5:nginx' } },
          },
          {
            timestamp: '2026-01-02T08:00:00Z',
            type: 'false-positive-determination',
            data: { type: 'component-vulnerability-mismatch', note: 'It is about a plugin of another project.' },
          },
        ],
      },
      {
        id: 'CVE-2026-1005',
        events: [
          { timestamp: '2026-01-01T08:00:00Z', type: 'detection', data: { type: 'manual' } },
          { timestamp: '2026-01-02T08:00:00Z', type: 'analysis-not-planned', data: { note: 'The branch ended.' } },
          { timestamp: '2026-01-03T08:00:00Z', type: 'fix-not-planned', data: { note: 'The branch ended.' } },
        ],
      },
    ],
  },
  csaf: {
    document: {
      category: 'csaf_vex',
      csaf_version: '2.0',
      title: 'Example server',
      publisher: { category: 'vendor', name: 'Example Corp', namespace: 'https://example.com' },
      tracking: {
        id: 'EX-SA-2026-1',
        status: 'final',
        version: '2',
        initial_release_date: '2026-01-01T08:00:00Z',
        current_release_date: '2026-01-05T08:00:00+00:00',
        revision_history: [],
      },
    },
    product_tree: {
      full_product_names: [{ product_id: 'OS-9', name: 'Example Linux 9', product_identification_helper: { cpe: 'cpe:/o:example:linux:9' } }],
      branches: [
        {
          category: 'vendor',
          name: 'Example Corp',
          branches: [
            {
              category: 'product_name',
              name: 'Example server',
              branches: [
                { category: 'product_version', name: '1.0', product: { product_id: 'SERVER-1.0', name: 'Example server 1.0' } },
                {
                  category: 'product_version',
                  name: '1.1',
                  product: { product_id: 'SERVER-1.1', name: 'Example server 1.1' },
                },
              ],
            },
            {
              category: 'architecture',
              name: 'x86_64',
              branches: [
                {
                  category: 'product_version',
                  name: 'openssl-3.2.1',
                  product: {
                    product_id: 'SSL',
                    name: 'openssl-3.2.1.x86_64',
                    product_identification_helper: { purl: 'pkg:rpm/example/openssl@3.2.1?arch=x86_64' },
                  },
                },
              ],
            },
          ],
        },
      ],
      relationships: [
        {
          category: 'default_component_of',
          product_reference: 'SSL',
          relates_to_product_reference: 'OS-9',
          full_product_name: { product_id: 'OS-9:SSL', name: 'openssl as a component of Example Linux 9' },
        },
      ],
      product_groups: [{ group_id: 'OLD', product_ids: ['SERVER-1.0'] }],
    },
    vulnerabilities: [
      {
        cve: 'CVE-2026-1001',
        ids: [{ system_name: 'GitHub', text: 'GHSA-aaaa-bbbb-cccc' }],
        product_status: { known_affected: ['SERVER-1.0'], fixed: ['SERVER-1.1'], known_not_affected: ['OS-9:SSL'] },
        flags: [{ label: 'vulnerable_code_not_present', product_ids: ['OS-9:SSL'] }],
        threats: [{ category: 'impact', details: 'The module is not built.', product_ids: ['OS-9:SSL'] }],
        remediations: [
          { category: 'workaround', details: 'Turn off compression.', group_ids: ['OLD'] },
          { category: 'no_fix_planned', details: '1.0 is out of support.', group_ids: ['OLD'] },
        ],
        scores: [
          {
            products: ['SERVER-1.0', 'SERVER-1.1'],
            cvss_v3: { version: '3.1', vectorString: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H', baseScore: 9.8, baseSeverity: 'CRITICAL' },
          },
        ],
      },
      {
        cve: 'CVE-2026-1002',
        product_status: { under_investigation: ['SERVER-1.0'], first_affected: ['SERVER-1.1'], known_affected: ['OS-9:SSL'] },
        remediations: [{ category: 'none_available', details: 'Upstream works on a fix.', product_ids: ['SERVER-1.1'] }],
      },
    ],
  },
  cyclonedx: {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: 'urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79',
    version: 1,
    metadata: {
      timestamp: '2026-01-02T08:00:00Z',
      supplier: { name: 'Example Corp' },
      component: { type: 'application', 'bom-ref': 'app', name: 'shop', version: '2.0' },
    },
    components: [
      { type: 'library', 'bom-ref': 'png', name: 'libpng', version: '1.6.40', purl: 'pkg:generic/libpng@1.6.40' },
      {
        type: 'library',
        name: 'bundle',
        components: [{ type: 'library', 'bom-ref': 'cart', group: 'example', name: 'cart', version: '3.1' }],
      },
    ],
    vulnerabilities: [
      {
        id: 'CVE-2026-1001',
        references: [{ id: 'GHSA-aaaa-bbbb-cccc', source: { name: 'GitHub' } }],
        ratings: [
          { method: 'CVSSv31', score: 9.8, vector: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' },
          { method: 'OWASP', score: 3 },
        ],
        analysis: { state: 'not_affected', justification: 'code_not_reachable', detail: 'The shop never decodes PNG.', lastUpdated: '2026-01-03T08:00:00Z' },
        affects: [{ ref: 'png' }],
      },
      { id: 'CVE-2026-1002', affects: [{ ref: 'app' }] },
      {
        id: 'CVE-2026-1003',
        analysis: { state: 'exploitable', response: ['will_not_fix', 'workaround_available'], detail: 'Remove the cart.' },
        affects: [{ ref: 'urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#cart' }, { ref: 'urn:cdx:f08a6ccd-4dce-4759-bd84-c626675d60a7/1#pkg:npm/a@1' }],
      },
      { id: 'CVE-2026-1004', analysis: { state: 'resolved' }, affects: [{ ref: 'cart' }] },
      { id: 'CVE-2026-1005', analysis: { state: 'resolved_with_pedigree' }, affects: [{ ref: 'cart' }] },
      { id: 'CVE-2026-1006', analysis: { state: 'false_positive' }, affects: [{ ref: 'cart' }] },
    ],
  },
  apkDatabase: {
    apkurl: '{{urlprefix}}/{{distroversion}}/{{reponame}}/{{arch}}/{{pkg.name}}-{{pkg.ver}}.apk',
    archs: ['x86_64', 'aarch64'],
    reponame: 'main',
    urlprefix: 'https://packages.example.com',
    distroversion: 'v3',
    packages: [
      {
        pkg: {
          name: 'nginx',
          secfixes: { '0': ['CVE-2026-1004'], '1.27.1-r0': ['CVE-2026-1001 GHSA-aaaa-bbbb-cccc', 'CVE-2026-1002'], '1.27.2-r1': ['CVE-2026-1001'] },
        },
      },
      { pkg: { name: 'zlib', secfixes: {} } },
    ],
  },
} as const
