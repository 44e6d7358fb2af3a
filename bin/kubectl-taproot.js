#!/usr/bin/env node
// kubectl finds it as its plugin under the name kubectl-taproot.
import { launch } from './launch.js'

launch('kubectl-taproot.ts', 'kubectl taproot')
