import { defineConfig, globalIgnores } from 'eslint/config'
import tseslint from 'typescript-eslint'

const thenable = 'An exported object with a `then` is taken for a promise by `await`: give the method another name.'
/** `then` as a property or method of an object literal or class (style.md 9). */
const noThen = ['Property', 'MethodDefinition', 'PropertyDefinition', 'TSMethodSignature', 'TSPropertySignature'].map((node) => ({
  selector: `${node}[key.name='then']`,
  message: thenable,
}))
const noEnvironment = {
  selector: "MemberExpression[object.name='process'][property.name=/^(env|argv|exit)$/]",
  message: 'Only src/cli, src/config and src/server read the environment and end the process: take the value as a parameter.',
}
/** ADR 0012: each such object has a shape of its own, which lives until the next full collection and keeps all that the getter refers to. */
const noLiteralGetter = {
  selector: "ObjectExpression > Property[kind='get']",
  message: 'A getter in an object literal costs memory for each object: make it a class.',
}
/** A call's context is a class with getters, which a spread loses. */
const noSpreadContext = {
  selector: "ObjectExpression > SpreadElement[argument.name='context']",
  message: 'A spread loses the getters of a context: make the copy with context.with().',
}
const lostCause = 'This loses the causes: write errorText(error) for the log, errorMessage(error) for people (src/base/error-text.ts).'
const errorNames = '/^(cause|err|error|failure|reason|thrown)$/'
/** A caught error as text, which is its first line alone. */
const noLostCause = [
  `CallExpression[callee.name='String'] > Identifier[name=${errorNames}]`,
  `CallExpression[callee.name='String'] MemberExpression[property.name='cause']`,
  `TemplateLiteral > Identifier[name=${errorNames}]`,
].map((selector) => ({ selector, message: lostCause }))
/** Modules below a package's root that the package exports. Others are private, and any version may remove them. */
const publicModules = [
  '@bufbuild/protobuf/(codegenv2|reflect|wire|wkt)',
  '@noble/curves/ed25519\\.js',
  '@bufbuild/protovalidate/gen/buf/validate/validate_pb\\.js',
  '@secvisogram/csaf-validator-lib/basic\\.js',
  'ajv/dist/2020\\.js',
  'eslint/config',
  'tsx/esm/api',
  'vitest/(config|node)',
]
const noPrivateModules = {
  regex: `^(?!node:|\\.|/)(?!(${publicModules.join('|')})$)(@[^/]+/[^/]+|[^@/][^/]*)/.`,
  message: 'This module of a package is private. If the package exports it, add it to publicModules in eslint.config.js.',
}
const sizes = {
  'no-restricted-imports': ['error', { patterns: [noPrivateModules] }],
  'max-lines': ['error', { max: 350, skipBlankLines: true, skipComments: false }],
  complexity: ['error', 15],
}

export default defineConfig(
  globalIgnores(['src/gen/**', 'src/**/*.js', 'node_modules/**', 'coverage/**', '.taproot/**', 'docs/examples/clients/**']),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.js', '**/*.cjs'],
    rules: { ...sizes, 'no-empty': 'error', 'no-unused-vars': 'error', 'prefer-const': 'error', eqeqeq: 'error', 'no-var': 'error' },
  },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [tseslint.configs.base],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      ...sizes,
      eqeqeq: 'error',
      'no-empty': 'error',
      'no-var': 'error',
      'prefer-const': 'error',
      'no-restricted-syntax': ['error', ...noThen, ...noLostCause, noEnvironment, noLiteralGetter, noSpreadContext],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-unnecessary-type-assertion': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/only-throw-error': 'error',
      // A signal's reason is of any type.
      '@typescript-eslint/prefer-promise-reject-errors': ['error', { allowThrowingAny: true, allowThrowingUnknown: true }],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    },
  },
  {
    files: ['src/**/*.ts', 'src/**/*.tsx'],
    rules: {
      'max-lines-per-function': ['error', { max: 60, skipBlankLines: true, skipComments: true }],
      'max-params': ['error', 3],
    },
  },
  {
    // The places that may read the environment.
    files: ['src/{cli,config,server}/**/*.ts'],
    rules: { 'no-restricted-syntax': ['error', ...noThen, ...noLostCause, noLiteralGetter] },
  },
  {
    // What follows the causes.
    files: ['src/base/error-text.ts'],
    rules: { 'no-restricted-syntax': ['error', ...noThen, noEnvironment, noLiteralGetter] },
  },
  {
    files: ['test/**/*.ts', 'bench/**/*.ts', 'tools/**/*.ts', '*.ts'],
    rules: { 'no-restricted-syntax': ['error', ...noThen] },
  },
)
