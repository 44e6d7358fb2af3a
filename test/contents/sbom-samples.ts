/** One image in each form of SBOM, as tools write it: `spdx`, `cyclonedx` and `syft` as syft and trivy do, `spdx3` by the specification. */

export const imageHex = 'a1'.repeat(32)

export const purls = {
  crypto: 'pkg:apk/wolfi/libcrypto3@3.3.1-r0?arch=x86_64&distro=wolfi-20230201&upstream=openssl',
  stdc: 'pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64&distro=debian-12&upstream=gcc-12',
  bash: 'pkg:rpm/redhat/bash@5.1.8-6.el9?arch=x86_64&distro=rhel-9.2&upstream=bash-5.1.8-6.el9.src.rpm',
  babel: 'pkg:npm/%40babel/core@7.24.0',
  text: 'pkg:maven/org.apache.commons/commons-text@1.10.0',
  sys: 'pkg:golang/golang.org/x/sys@v0.20.0',
} as const

/** The paths of the packages. */
const found = {
  crypto: '/lib/apk/db/installed',
  stdc: '/var/lib/dpkg/status.d/libstdc',
  babel: '/app/node_modules/@babel/core/package.json',
  text: '/app/lib/commons-text-1.10.0.jar',
} as const

function spdxPackage(id: string, purl: string, more: object): object {
  return {
    SPDXID: `SPDXRef-Package-${id}`,
    downloadLocation: 'NOASSERTION',
    filesAnalyzed: false,
    licenseConcluded: 'NOASSERTION',
    licenseDeclared: 'NOASSERTION',
    externalRefs: [
      { referenceCategory: 'SECURITY', referenceType: 'cpe23Type', referenceLocator: 'cpe:2.3:a:x:x:1:*:*:*:*:*:*:*' },
      { referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: purl },
    ],
    ...more,
  }
}

export const spdx = {
  spdxVersion: 'SPDX-2.3',
  dataLicense: 'CC0-1.0',
  SPDXID: 'SPDXRef-DOCUMENT',
  name: 'registry.example.com/shop',
  documentNamespace: 'https://example.com/shop-1',
  creationInfo: { created: '2026-01-01T00:00:00Z', creators: ['Tool: example-1.0'] },
  packages: [
    spdxPackage('crypto', purls.crypto, {
      name: 'libcrypto3',
      versionInfo: '3.3.1-r0',
      licenseDeclared: 'Apache-2.0',
      sourceInfo: `acquired package info from APK DB: ${found.crypto}`,
    }),
    spdxPackage('stdc', purls.stdc, { name: 'libstdc++6', versionInfo: '12.2.0-14', sourceInfo: 'built package from: gcc-12 12.2.0-14' }),
    spdxPackage('bash', purls.bash, { name: 'bash', versionInfo: '5.1.8-6.el9' }),
    spdxPackage('babel', 'pkg:npm/@babel/core@7.24.0', { name: '@babel/core', versionInfo: '7.24.0', sourceInfo: `package found in: ${found.babel.slice(1)}` }),
    spdxPackage('text', purls.text, { name: 'commons-text', versionInfo: '1.10.0' }),
    spdxPackage('sys', purls.sys, { name: 'golang.org/x/sys', versionInfo: 'v0.20.0' }),
    { SPDXID: 'SPDXRef-Package-tool', name: 'tool', versionInfo: '1', downloadLocation: 'NOASSERTION' },
    { SPDXID: 'SPDXRef-System', name: 'wolfi', versionInfo: '20230201', primaryPackagePurpose: 'OPERATING-SYSTEM', downloadLocation: 'NONE' },
    spdxPackage('root', `pkg:oci/shop@sha256%3A${imageHex}?arch=amd64`, {
      name: 'shop',
      versionInfo: `sha256:${imageHex}`,
      primaryPackagePurpose: 'CONTAINER',
    }),
  ],
  files: [{ SPDXID: 'SPDXRef-File-text', fileName: found.text.slice(1), checksums: [] }],
  relationships: [
    { spdxElementId: 'SPDXRef-DOCUMENT', relatedSpdxElement: 'SPDXRef-Package-root', relationshipType: 'DESCRIBES' },
    {
      spdxElementId: 'SPDXRef-Package-text',
      relatedSpdxElement: 'SPDXRef-File-text',
      relationshipType: 'OTHER',
      comment: 'evident-by: the file shows that the package exists',
    },
  ],
}

/** The same, without the package that has no package URL. */
export const namedSpdx = { ...spdx, packages: spdx.packages.filter((one) => !('name' in one && one.name === 'tool')) }

const ids = 'https://example.com/shop-1#'

function spdx3Package(id: string, more: object): object {
  return { type: 'software_Package', spdxId: `${ids}${id}`, creationInfo: '_:creation', name: id, ...more }
}

function relation(from: string, relationshipType: string, to: string): object {
  return { type: 'Relationship', spdxId: `${ids}${from}-${relationshipType}`, creationInfo: '_:creation', from: `${ids}${from}`, relationshipType, to: [to] }
}

export const spdx3 = {
  '@context': 'https://spdx.org/rdf/3.0.1/spdx-context.jsonld',
  '@graph': [
    { type: 'CreationInfo', '@id': '_:creation', specVersion: '3.0.1', created: '2026-01-01T00:00:00Z', createdBy: [`${ids}me`] },
    { type: 'Person', spdxId: `${ids}me`, creationInfo: '_:creation', name: 'Ann' },
    { type: 'SpdxDocument', spdxId: `${ids}document`, creationInfo: '_:creation', rootElement: [`${ids}bom`] },
    { type: 'software_Sbom', spdxId: `${ids}bom`, creationInfo: '_:creation', rootElement: [`${ids}root`], software_sbomType: ['analyzed'] },
    spdx3Package('root', { name: 'shop', software_packageVersion: `sha256:${imageHex}`, software_primaryPurpose: 'container' }),
    spdx3Package('system', { name: 'wolfi', software_packageVersion: '20230201', software_primaryPurpose: 'operatingSystem' }),
    spdx3Package('crypto', { software_packageUrl: purls.crypto, software_packageVersion: '3.3.1-r0' }),
    spdx3Package('stdc', {
      externalIdentifier: [
        { type: 'ExternalIdentifier', externalIdentifierType: 'cpe23', identifier: 'cpe:2.3:a:x:x:1:*:*:*:*:*:*:*' },
        { type: 'ExternalIdentifier', externalIdentifierType: 'packageUrl', identifier: purls.stdc },
      ],
    }),
    spdx3Package('bash', { software_packageUrl: purls.bash }),
    spdx3Package('babel', { software_packageUrl: purls.babel, software_sourceInfo: `package found in: ${found.babel.slice(1)}` }),
    spdx3Package('text', { software_packageUrl: purls.text }),
    spdx3Package('sys', { software_packageUrl: purls.sys }),
    spdx3Package('tool', {}),
    { type: 'software_File', spdxId: `${ids}file`, creationInfo: '_:creation', name: found.text },
    { type: 'software_File', spdxId: `${ids}database`, creationInfo: '_:creation', name: found.crypto.slice(1) },
    { type: 'simplelicensing_LicenseExpression', spdxId: `${ids}license`, creationInfo: '_:creation', simplelicensing_licenseExpression: 'Apache-2.0' },
    relation('crypto', 'hasDeclaredLicense', `${ids}license`),
    relation('babel', 'hasConcludedLicense', 'https://spdx.org/licenses/MIT'),
    relation('text', 'hasEvidence', `${ids}file`),
    { ...relation('crypto', 'other', `${ids}database`), comment: 'evident-by: the file shows that the package exists' },
    // A cycle.
    relation('sys', 'dependsOn', `${ids}text`),
    relation('text', 'dependsOn', `${ids}sys`),
  ],
}

function property(name: string, value: string): object {
  return { name, value }
}

export const cyclonedx = {
  $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
  bomFormat: 'CycloneDX',
  specVersion: '1.6',
  version: 1,
  metadata: { component: { 'bom-ref': 'root', type: 'container', name: 'shop', version: `sha256:${imageHex}` } },
  components: [
    {
      type: 'library',
      name: 'libcrypto3',
      version: '3.3.1-r0',
      purl: purls.crypto,
      licenses: [{ license: { id: 'Apache-2.0' } }, { license: { name: 'Apache License' } }],
      properties: [
        property('syft:location:0:path', found.crypto),
        property('syft:location:0:layerID', 'sha256:1'),
        property('syft:metadata:originPackage', 'openssl'),
      ],
    },
    {
      type: 'library',
      name: 'libstdc++6',
      version: '12.2.0-14',
      purl: purls.stdc,
      properties: [property('aquasecurity:trivy:SrcName', 'gcc-12'), property('aquasecurity:trivy:FilePath', found.stdc.slice(1))],
    },
    { type: 'library', name: 'bash', version: '5.1.8-6.el9', purl: purls.bash },
    {
      type: 'application',
      name: 'app/package-lock.json',
      properties: [property('aquasecurity:trivy:Class', 'lang-pkgs')],
      components: [
        {
          type: 'library',
          group: '@babel',
          name: 'core',
          version: '7.24.0',
          purl: 'pkg:npm/@babel/core@7.24.0',
          licenses: [{ expression: 'MIT' }],
          evidence: { occurrences: [{ location: found.babel }] },
          components: [{ type: 'library', name: 'golang.org/x/sys', version: 'v0.20.0', properties: [property('syft:package:type', 'go-module')] }],
        },
      ],
    },
    { type: 'library', group: 'org.apache.commons', name: 'commons-text', version: '1.10.0', purl: purls.text },
    { type: 'library', name: 'tool', version: '1' },
    { type: 'file', name: '/bin/sh', hashes: [] },
    { type: 'operating-system', name: 'Wolfi', version: '20230201', properties: [property('syft:distro:id', 'wolfi')] },
  ],
  dependencies: [
    { ref: 'a', dependsOn: ['b'] },
    { ref: 'b', dependsOn: ['a'] },
  ],
}

export const syft = {
  artifacts: [
    {
      id: '1',
      name: 'libcrypto3',
      version: '3.3.1-r0',
      type: 'apk',
      locations: [{ path: found.crypto, layerID: 'sha256:1', accessPath: found.crypto, annotations: { evidence: 'primary' } }],
      licenses: [{ value: 'Apache-2.0', spdxExpression: 'Apache-2.0', type: 'declared', urls: [], locations: [] }],
      purl: purls.crypto,
      metadataType: 'apk-db-entry',
      metadata: { package: 'libcrypto3', originPackage: 'openssl', files: [{ path: '/usr/lib/libcrypto.so.3' }] },
    },
    { id: '2', name: 'libstdc++6', version: '12.2.0-14', type: 'deb', purl: purls.stdc, metadata: { source: 'gcc-12', sourceVersion: '' } },
    { id: '3', name: 'bash', version: '5.1.8-6.el9', type: 'rpm', purl: purls.bash, metadata: { sourceRpm: 'bash-5.1.8-6.el9.src.rpm' } },
    { id: '4', name: '@babel/core', version: '7.24.0', type: 'npm', locations: [{ path: found.babel }], licenses: ['MIT'], purl: '', metadata: {} },
    { id: '5', name: 'commons-text', version: '1.10.0', type: 'java-archive', purl: '', metadata: { pomProperties: { groupId: 'org.apache.commons' } } },
    { id: '6', name: 'golang.org/x/sys', version: 'v0.20.0', type: 'go-module', purl: purls.sys, metadata: null },
    { id: '7', name: 'tool', version: '1', type: 'binary', purl: '' },
  ],
  artifactRelationships: [],
  source: { id: '9', name: 'shop', version: `sha256:${imageHex}`, type: 'image', metadata: { userInput: 'shop:1' } },
  distro: { prettyName: 'Wolfi', id: 'wolfi', versionID: '20230201' },
  descriptor: { name: 'syft', version: '1.57.1' },
  schema: { version: '16.1.0', url: 'https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.1.0.json' },
}
