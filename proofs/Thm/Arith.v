(** Arithmetic of factors and shapes. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Sequences.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Lemma factor_gt1 w m : factor w m -> 1 < m.
Proof. by case: w => //= /prime_gt1. Qed.

Lemma factor_gt0 w m : factor w m -> 0 < m.
Proof. by move/factor_gt1/ltnW. Qed.

(** Factors are closed under divisors above 1: all that the diamonds need of primality. *)
Lemma factor_dvd w m d : factor w m -> d %| m -> d = 1 \/ factor w d.
Proof.
case: w => /= [m_pr | m1] dm; last first.
  have d0 : 0 < d by apply: dvdn_gt0 dm; lia.
  by case: (eqVneq d 1) => [|d1]; [left | right; lia].
have /primeP [_ /(_ d dm)] := m_pr.
by case/orP => /eqP ->; [left | right].
Qed.

Lemma prime_mul_eq1 a b : prime (a * b) -> a = 1 \/ b = 1.
Proof.
move=> pr; have gt1 := prime_gt1 pr.
have /primeP [_ /(_ a (dvdn_mulr _ (dvdnn a)))] := pr.
case/orP => /eqP E; [by left | right].
have a0 : 0 < a by lia.
by apply/eqP; rewrite -(eqn_pmul2l a0) muln1 -E.
Qed.

(** Splitting two factors by their greatest common divisor. *)
Lemma gcd_split m n : 0 < m -> 0 < n ->
  exists g m' n', [/\ m = m' * g, n = n' * g, coprime m' n' & [/\ 0 < g, 0 < m' & 0 < n']].
Proof.
move=> m0 n0; have g0 : 0 < gcdn m n by rewrite gcdn_gt0 m0.
exists (gcdn m n), (m %/ gcdn m n), (n %/ gcdn m n).
rewrite !divnK ?dvdn_gcdl ?dvdn_gcdr //; split=> //.
  have := muln_gcdl (m %/ gcdn m n) (n %/ gcdn m n) (gcdn m n).
  rewrite !divnK ?dvdn_gcdl ?dvdn_gcdr // => E.
  by rewrite /coprime -(eqn_pmul2r g0) E mul1n.
by split; rewrite // divn_gt0 // dvdn_leq ?dvdn_gcdl ?dvdn_gcdr.
Qed.

Section Shapes.
Variable r : nat.
Implicit Types (c d e : shape r) (i j k : 'I_r).

Lemma vol_mul i m c : vol (mul i m c) = m * vol c.
Proof.
rewrite /vol (bigD1 i) //= [X in _ = _ * X](bigD1 i) //= ffunE eqxx [c i * m]mulnC -mulnA.
by congr (_ * (_ * _)); apply: eq_bigr => k /negPf ki; rewrite ffunE ki.
Qed.

Lemma mul1 i c : mul i 1 c = c.
Proof. by apply/ffunP=> k; rewrite ffunE muln1 if_same. Qed.

Lemma mulC i j m n c : mul i m (mul j n c) = mul j n (mul i m c).
Proof. by apply/ffunP=> k; rewrite !ffunE; case: eqP; case: eqP; lia. Qed.

Lemma mulA i m n c : mul i m (mul i n c) = mul i (n * m) c.
Proof. by apply/ffunP=> k; rewrite !ffunE; case: eqP; lia. Qed.

Lemma mul_dvd i m c k : c k %| mul i m c k.
Proof. by rewrite ffunE; case: eqP => _; rewrite ?dvdn_mulr. Qed.

Lemma mul_dvd2 i m n c k : m %| n -> mul i m c k %| mul i n c k.
Proof. by rewrite !ffunE; case: eqP => _ // mn; rewrite dvdn_mul. Qed.

Lemma dvd_mul2 i m c d : (forall k, c k %| d k) -> forall k, mul i m c k %| mul i m d k.
Proof. by move=> cd k; rewrite !ffunE; case: eqP => _; rewrite ?dvdn_mul. Qed.

(** Two ways of reaching one shape have a common origin: along different dimensions, ... *)
Lemma split_neq i j m n c d : i != j -> mul i m c = mul j n d -> exists e, c = mul j n e /\ d = mul i m e.
Proof.
move=> ij /ffunP E; exists [ffun k => if k == j then d k else c k].
split; apply/ffunP=> k; move: (E k); rewrite !ffunE; case: (eqVneq k j) => [->|] //.
  by rewrite eq_sym (negPf ij).
by rewrite eq_sym (negPf ij).
Qed.

(** ... and along one dimension, with coprime factors. *)
Lemma split_eq i m n c d : coprime m n -> 0 < n -> mul i m c = mul i n d -> exists e, c = mul i n e /\ d = mul i m e.
Proof.
move=> mn n0 /ffunP E.
have /dvdnP [a ca] : n %| c i.
  by have := E i; rewrite !ffunE eqxx => Ei; rewrite -(@Gauss_dvdl n (c i) m) 1?coprime_sym // Ei dvdn_mull.
exists [ffun k => if k == i then a else c k].
split; apply/ffunP=> k; move: (E k); rewrite !ffunE; case: eqP => // -> // Ei.
by apply/eqP; rewrite -(eqn_pmul2r n0) -Ei ca mulnAC.
Qed.

Lemma mul_inj i m c d : 0 < m -> mul i m c = mul i m d -> c = d.
Proof.
move=> m0 /ffunP E; apply/ffunP=> k; move: (E k); rewrite !ffunE; case: eqP => // _ /eqP.
by rewrite eqn_pmul2r // => /eqP.
Qed.

Lemma vol_dvd c d : (forall k, c k %| d k) -> vol c %| vol d.
Proof. by move=> cd; apply: (big_ind2 dvdn) => // a b a' b'; apply: dvdn_mul. Qed.
End Shapes.
