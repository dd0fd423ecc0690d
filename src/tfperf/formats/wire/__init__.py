"""The XSpace wire format: conversion between bytes and columns, independent of steps."""
